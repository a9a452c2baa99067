"""Readers: from files, folders and data sets to documents. One file a reader, one line here to add it.

A reader is `read(file, options)`, a generator of Documents in the order they are stored. It holds no more
than one document or one small batch of rows, and every fault is a CorpusError with file and line.
"""

import os
import re
from pathlib import Path

from recallgap.corpus.readers.documents import CODECS, Document, InputFile, ReadOptions
from recallgap.corpus.readers.hugging_face import is_saved_dataset, read_dataset
from recallgap.corpus.readers.jsonl import read_jsonl
from recallgap.corpus.readers.parquet import read_parquet
from recallgap.corpus.readers.text import read_text
from recallgap.errors import CorpusError
from recallgap.registry import pick

__all__ = ["READERS", "Document", "InputFile", "ReadOptions", "find_inputs", "read"]

READERS = {"text": read_text, "jsonl": read_jsonl, "parquet": read_parquet, "datasets": read_dataset}
FORMAT_OF_SUFFIX = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".parquet": "parquet"}
HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


def read(file, options):
    """The documents of one input file, in order."""
    return READERS[file.format](file, options)


def find_inputs(inputs, options):
    """The input files behind what the user named, in the order in which they are read.

    A folder stands for its files in sorted order, hidden ones left out, unless `datasets` saved it.
    CorpusError when an input is missing or a folder has no file.
    """
    if options.format is not None:
        pick("format", READERS, options.format)
    return [file for given in inputs for file in _files_of(str(given), options.format)]


def _files_of(given, asked):
    path = Path(given)
    if not path.exists():
        if asked == "datasets":
            return [InputFile(None, given, "datasets")]
        hint = " For a dataset of the hub add --format datasets." if HUB_NAME.fullmatch(given) else ""
        raise CorpusError(f"reading {given}: there is no such file or folder.{hint}")
    if path.is_file():
        return [InputFile(path, _storable(path.name), asked or _format_of(path))]
    if asked == "datasets" or (asked is None and is_saved_dataset(path)):
        return [InputFile(path, _storable(path.resolve().name), "datasets")]
    files = list(_walk(path, asked))
    if not files:
        raise CorpusError(f"reading folder {given}: it has no files (hidden ones are left out)")
    return files


def _walk(folder, asked):
    names = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
    for name in names:
        parts = name.split("/")
        if not any(part.startswith(".") for part in parts):
            path, domain = folder / name, parts[0] if len(parts) > 1 else ""
            yield InputFile(path, _storable(name), asked or _format_of(path), _storable(domain))


def _storable(name):
    """A file name as text: names are bytes to the system, and need not be UTF-8."""
    return os.fsencode(name).decode(errors="replace")


def _format_of(path):
    plain = path.with_suffix("") if path.suffix.lower() in CODECS else path
    return FORMAT_OF_SUFFIX.get(plain.suffix.lower(), "text")
