"""Token files that exist already, opened as a corpus without copying their ids.

The corpus is an artifact like any other: documents, index and hashes are written, and each `tokens-*.bin` is
a symbolic link to the file given. A hard link would need one file system and, on most systems, a file of
one's own; a copy would need the space again. What holds for every artifact holds here too: sizes are checked
when it is opened, content by `recallgap info --check`, and the fingerprint depends on the ids, not on where
they lie. `cp -rL` makes it stand on its own. A file whose ids are not bare (a .npy has a header) is copied.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from recallgap.artifact import file_sha256, fingerprint_of
from recallgap.corpus.formats import FORMATS
from recallgap.corpus.linking import document_lengths, link_shard, stored_dtype
from recallgap.corpus.scanning import scan
from recallgap.corpus.store import open_corpus
from recallgap.corpus.tokenizer import load_tokenizer
from recallgap.errors import ConfigError, CorpusError
from recallgap.progress import Progress, note
from recallgap.registry import pick
from recallgap.staging import stage, up_to_date

LARGEST_VOCABULARY = 1 << 31


@dataclass(frozen=True, kw_only=True)
class ImportConfig:
    """What token files do not say themselves."""

    format: str
    """One of FORMATS."""
    tokenizer: str | None = None
    """The tokenizer that made the ids, in any form that `load_tokenizer` reads."""
    vocab_size: int | None = None
    """In place of a tokenizer: every id is below it."""
    separator_id: int | None = None
    """Id that ends each document. It splits the stream where the format names no documents."""
    domain: str = ""
    """Domain of all documents."""

    def __post_init__(self):
        pick("format", FORMATS, self.format)
        if (self.tokenizer is None) == (self.vocab_size is None):
            raise ConfigError(
                "importing needs either the tokenizer that made the ids or the size of its vocabulary: give "
                "one of --tokenizer and --vocab-size"
            )
        if self.vocab_size is not None and not 1 <= self.vocab_size <= LARGEST_VOCABULARY:
            raise ConfigError(f"vocab_size is {self.vocab_size}, but 1 to {LARGEST_VOCABULARY:,} is possible")


def import_corpus(paths, out, *, config, overwrite=False):
    """Open token files (paths, in the order of the stream) as the corpus folder `out`; ids stay in place.

    Returns the opened Corpus. The ids are read twice, to be checked and to be hashed. CorpusError names the
    file, and the position of an id that is beyond the vocabulary.
    """
    tokenizer = load_tokenizer(config.tokenizer) if config.tokenizer else None
    vocab_size = tokenizer.vocab_size if tokenizer else config.vocab_size
    if config.separator_id is not None and not 0 <= config.separator_id < vocab_size:
        raise ConfigError(
            f"separator_id is {config.separator_id}, but the vocabulary has {vocab_size} entries, from 0"
        )
    files = FORMATS[config.format](paths)
    _refuse_files_inside(out, files)
    n_tokens = sum(file.n_tokens for file in files)
    if n_tokens == 0:
        raise CorpusError(f"importing {', '.join(str(file.path) for file in files)}: there is no token in it")
    end_id = tokenizer.eos_id if tokenizer and config.separator_id is None else config.separator_id
    with Progress("corpus import", n_tokens) as progress:
        scanned = [scan(file, vocab_size, config.separator_id, end_id, progress) for file in files]
    lengths_F = document_lengths([found.file for found in scanned])
    records = [_record(found) for found in scanned]
    plan = {
        "kind": "corpus",
        "config": _stream_config(tokenizer, vocab_size, config),
        "inputs": {
            "tokenizer": tokenizer.fingerprint if tokenizer else None,
            "text": fingerprint_of(records),
        },
    }
    if not overwrite and up_to_date(out, **plan):
        return open_corpus(out)
    with stage(out, **plan, overwrite=overwrite) as staging:
        for number, (found, lengths_N) in enumerate(zip(scanned, lengths_F, strict=True)):
            link_shard(staging, number, found.file, lengths_N, vocab_size=vocab_size, domain=config.domain)
        if tokenizer:
            with staging.write("tokenizer.json") as path:
                path.write_text(tokenizer.backend.to_str(), encoding="utf-8")
        with staging.write("inputs.json") as path:
            path.write_text(json.dumps(records, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        staging.results = _results(scanned, lengths_F, vocab_size, config)
    _say_what_is_unsure(scanned, config, end_id)
    return open_corpus(out)


def _refuse_files_inside(out, files):
    """A file that the new folder would replace cannot be what the new folder links to."""
    for file in files:
        if file.path.resolve().is_relative_to(Path(out).resolve()):
            raise ConfigError(
                f"importing {file.path}: it lies inside the output {out}; choose another output"
            )


def _stream_config(tokenizer, vocab_size, config):
    """The settings that, with the inputs, determine the corpus."""
    separator_id, backend = config.separator_id, tokenizer.backend if tokenizer else None
    return {
        "format": config.format,
        "vocab_size": vocab_size,
        "separator_id": separator_id,
        "separator": backend.id_to_token(separator_id) if backend and separator_id is not None else None,
        "bos_id": tokenizer.bos_id if tokenizer else None,
        "eos_id": tokenizer.eos_id if tokenizer else None,
        "tokenizer_json": fingerprint_of(json.loads(backend.to_str())) if backend else None,
        "domain": config.domain,
    }


def _record(scanned):
    """What identifies a token file, as JSON values: its name and content, and those of what describes it."""
    file = scanned.file
    beside = [{"name": p.name, "bytes": p.stat().st_size, "sha256": file_sha256(p)} for p in file.beside]
    record = {"name": file.name, "bytes": file.path.stat().st_size, "sha256": scanned.sha256}
    return {**record, "documents_from": file.documents_from, "beside": beside}


def _results(scanned, lengths_F, vocab_size, config):
    """Totals like those of a corpus built from text; the bytes of its text are not known and stand as 0."""
    longest = [int(lengths_N.max(initial=-1)) for lengths_N in lengths_F]
    place = longest.index(max(longest))
    n_tokens = sum(int(lengths_N.sum()) for lengths_N in lengths_F)
    totals = {"n_documents": sum(map(len, lengths_F)), "n_tokens": n_tokens, "n_bytes": 0}
    return {
        **totals,
        "domains": {config.domain: totals},
        "longest_document": {
            "n_tokens": longest[place],
            "source": f"{scanned[place].file.name}:{int(lengths_F[place].argmax()) + 1}",
        },
        "n_shards": len(scanned),
        "n_files": len(scanned),
        "dtype": ", ".join(sorted({stored_dtype(found.file, vocab_size).name for found in scanned})),
        "documents_from": ", ".join(sorted({found.file.documents_from for found in scanned})),
        "n_separators": 0 if config.separator_id is None else sum(found.n_ends for found in scanned),
    }


def _say_what_is_unsure(scanned, config, end_id):
    """Notes on what is doubtful: documents that nothing ends, a separator not named or never met."""
    whole = [found.file.name for found in scanned if found.file.documents_from == "whole files"]
    n_ends = sum(found.n_ends for found in scanned)
    if whole:
        note(
            f"nothing says where documents end in {', '.join(whole)}: each file is one document. Name the id "
            "that ends documents with --separator-id"
        )
    if config.separator_id is None and n_ends:
        note(
            f"id {end_id}, the tokenizer's end of text, occurs {n_ends:,} times. If it ends documents, say "
            f"so with --separator-id {end_id}: else n-grams that hold it are counted as text"
        )
    if config.separator_id is not None and n_ends == 0:
        note(f"the separator id {config.separator_id} never occurs; was another id meant?")
