"""What all readers share: the document, the options, opening and decoding bytes, looking up fields."""

import io
import re
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from recallgap.errors import ConfigError, CorpusError

CODECS = {".gz": "gzip", ".zst": "zstd"}
READ_BYTES = 1 << 16
"""Decompressed at a time. Small, as all of the piece in which a file breaks off is lost."""
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
LONE_SURROGATE = re.compile("[\ud800-\udfff]")
PILE_DOMAIN_FIELD = "meta.pile_set_name"


@dataclass(frozen=True)
class Document:
    """One document of a corpus, before tokenizing."""

    text: str
    domain: str
    source: str
    """Where it came from, as "file-name:line" (a row of a table: "file-name:row"), counted from 1."""
    n_replaced: int = 0
    """Pieces of invalid UTF-8 that were replaced by U+FFFD."""


@dataclass(frozen=True)
class InputFile:
    """One file to read, or one dataset."""

    path: Path | None
    """None: a dataset of the Hugging Face hub."""
    name: str
    """Relative to the input that the user named, so that no result depends on where the data lie."""
    format: str
    domain: str = ""
    """Domain of its documents that name none themselves."""


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """How inputs are read."""

    format: str | None = None
    """One of READERS for all inputs; None: by the suffix of each file."""
    strict: bool = False
    """Refuse invalid UTF-8 instead of replacing and counting it."""
    text_field: str = "text"
    """Field (JSONL) or column (Parquet, datasets) with the text; dots lead into nested ones."""
    domain_field: str | None = None
    """Field with the domain, then required; None: the Pile's meta.pile_set_name where it is there."""
    dataset_config: str | None = None
    """Configuration of a hub dataset."""
    dataset_split: str | None = None
    """Split of a dataset, such as "train"."""
    dataset_revision: str | None = None
    """Revision (commit, branch or tag) of a hub dataset."""
    streaming: bool = False
    """Read a hub dataset as it is downloaded, without keeping it on disk."""

    def __post_init__(self):
        for name in ("text_field", "domain_field"):
            if getattr(self, name) == "":
                raise ConfigError(f"{name} is empty, but it must name a field")


def open_bytes(path):
    """A buffered stream of the file's bytes, decompressed if its suffix is .gz or .zst."""
    codec = CODECS.get(path.suffix.lower())
    if codec is None:
        return open(path, "rb")
    return io.BufferedReader(pa.CompressedInputStream(pa.OSFile(str(path)), codec), READ_BYTES)


def damaged(source, error):
    """The CorpusError for bytes that cannot be had: truncated, corrupt or not readable."""
    return CorpusError(f"reading {source}: {error}. The file is incomplete or damaged; get it again")


def decode(raw, source, strict):
    """(text, number of replacements) of UTF-8 bytes; invalid ones become U+FFFD, or CorpusError if `strict`.

    >>> decode(b"caf\\xe9", "a.txt:1", strict=False) == ("caf" + REPLACEMENT, 1)
    True
    """
    try:
        return raw.decode(), 0
    except UnicodeDecodeError as error:
        if strict:
            line = raw.count(b"\n", 0, error.start) + 1
            raise CorpusError(
                f"reading {source}: byte {error.start} of this record (its line {line}) is not valid UTF-8 "
                f"({error.reason}). Repair it, or leave --strict away to have it replaced and counted"
            ) from None
    text = raw.decode(errors="replace")
    return text, text.count(REPLACEMENT) - raw.count(REPLACEMENT.encode())


def without_lone_surrogates(text, source, strict):
    """(text, number of replacements): lone surrogates, which JSON can spell, have no UTF-8 form."""
    try:
        text.encode()
        return text, 0
    except UnicodeEncodeError as error:
        if strict:
            raise CorpusError(
                f"reading {source}: character {error.start} of the text is a lone surrogate, which no UTF-8 "
                "can hold. Repair it, or leave --strict away to have it replaced and counted"
            ) from None
    return LONE_SURROGATE.subn(REPLACEMENT, text)


def lookup(record, field):
    """The value at a dotted field of nested dicts; KeyError with the part that is missing.

    >>> lookup({"meta": {"lang": "en"}}, "meta.lang")
    'en'
    """
    for key in field.split("."):
        if not isinstance(record, dict) or key not in record:
            raise KeyError(key)
        record = record[key]
    return record


def missing_field(source, role, field, known):
    """The CorpusError for a record that lacks a field; `known`: the names that are there."""
    has = ", ".join(sorted(known)) or "none"
    return CorpusError(
        f"reading {source}: it has no field '{field}' for the {role}, only: {has}. "
        f"Name the right one with --{role}-field"
    )


def not_a_string(source, role, field, value):
    kind = type(value).__name__
    return CorpusError(f"reading {source}: field '{field}' holds {kind}, but the {role} must be a string")
