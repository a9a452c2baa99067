"""Text to tokens: read documents, tokenize them on all cores, write them as the shards of a corpus.

A document ends in the separator token, if there is one, and never straddles two shards. What a shard holds
depends on the documents alone, and each finished shard knows how far the input was read: an interrupted build
goes on behind its last shard and ends in the same bytes.
"""

import json
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from recallgap.artifact import fingerprint_of
from recallgap.corpus.readers import ReadOptions, find_inputs
from recallgap.corpus.reading import Reading, documents_after, input_records
from recallgap.corpus.store import (
    Shard,
    corpus_totals,
    finished_shards,
    map_shard,
    open_corpus,
    shard_name,
    write_shard,
)
from recallgap.corpus.tokenizer import load_tokenizer
from recallgap.errors import ConfigError, CorpusError
from recallgap.progress import Progress
from recallgap.staging import stage, up_to_date

BATCH_CHARACTERS = 1 << 21
"""Text given to the tokenizer at once: enough documents for every core, yet little memory."""
BATCHES_AHEAD = 3
"""Batches being tokenized at a time. More than one, so that the cores stay busy while the last document of a
batch is tokenized and while its ids are handed to Python."""


@dataclass(frozen=True, kw_only=True)
class BuildConfig(ReadOptions):
    """How a corpus is built from text."""

    tokenizer: str
    """Path or hub name, in any form that `load_tokenizer` reads."""
    separator: str = "auto"
    """Token that ends each document: "auto" is the tokenizer's EOS, "none" none, else the token's text."""
    max_documents: int | None = None
    """Stop after this many documents with text; None: take all."""
    shard_tokens: int = 1 << 27
    """A shard is closed by the document that brings it to so many tokens."""

    def __post_init__(self):
        super().__post_init__()
        for name in ("max_documents", "shard_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} is {value}, but at least 1 is needed")


def build_corpus(inputs, out, *, config, overwrite=False):
    """Tokenize `inputs` (paths of files, folders or saved datasets; hub names) into the corpus folder `out`.

    Returns the opened Corpus. A finished one made by the same call is opened as it is; an unfinished one is
    continued. CorpusError names file and line of what cannot be read.
    """
    tokenizer = load_tokenizer(config.tokenizer)
    separator_id = _separator_id(tokenizer, config.separator)
    for folder in inputs:
        if Path(folder).is_dir() and Path(out).resolve().is_relative_to(Path(folder).resolve()):
            raise ConfigError(
                f"building corpus {out}: it lies inside the input {folder}; choose another output"
            )
    files = find_inputs(inputs, config)
    records = input_records(files, config)
    plan = {
        "kind": "corpus",
        "config": _stream_config(tokenizer, separator_id, config),
        "inputs": {"tokenizer": tokenizer.fingerprint, "text": fingerprint_of(records)},
    }
    if not overwrite and up_to_date(out, **plan):
        return open_corpus(out)
    with stage(out, **plan, overwrite=overwrite) as staging:
        n_shards, reading = _write_shards(staging, files, tokenizer, separator_id, config)
        if reading.n_documents == 0:
            raise CorpusError(
                f"building corpus {out}: {len(files)} input file(s) hold no document with text "
                f"({reading.n_empty} empty ones), but a corpus needs at least one"
            )
        with staging.write("tokenizer.json") as path:
            path.write_text(tokenizer.backend.to_str(), encoding="utf-8")
        with staging.write("inputs.json") as path:
            path.write_text(json.dumps(records, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        staging.results = {
            **corpus_totals(staging, n_shards),
            "n_files": len(files),
            "n_empty": reading.n_empty,
            "n_replaced": reading.n_replaced,
            "n_separators_in_text": _separators_in_text(staging, n_shards, separator_id, reading),
        }
    return open_corpus(out)


def _separator_id(tokenizer, separator):
    if separator == "none":
        return None
    if separator != "auto":
        return tokenizer.token_id(separator)
    if tokenizer.eos_id is None:
        raise ConfigError(
            f"tokenizer {tokenizer.name} names no end-of-text token to separate documents with; "
            "choose one with --separator TOKEN, or --separator none"
        )
    return tokenizer.eos_id


def _stream_config(tokenizer, separator_id, config):
    """The settings that, with the inputs, determine the corpus."""
    separator = None if separator_id is None else tokenizer.backend.id_to_token(separator_id)
    return {
        "vocab_size": tokenizer.vocab_size,
        "separator_id": separator_id,
        "separator": separator,
        "bos_id": tokenizer.bos_id,
        "eos_id": tokenizer.eos_id,
        "tokenizer_json": fingerprint_of(json.loads(tokenizer.backend.to_str())),
        "text_field": config.text_field,
        "domain_field": config.domain_field,
        "strict": config.strict,
        "max_documents": config.max_documents,
        "shard_tokens": config.shard_tokens,
    }


def _write_shards(staging, files, tokenizer, separator_id, config):
    """Write the shards that are not there yet; returns (number of shards, the reading at the end)."""
    n_shards, stored = finished_shards(staging)
    reading = Reading(**stored) if stored else Reading()
    shard = Shard(tokenizer.vocab_size)
    ending = np.array([] if separator_id is None else [separator_id], dtype=np.int32)
    stream = documents_after(reading, files, config, config.max_documents)
    with Progress("corpus build") as progress:
        for document, reading, ids in _tokenized(stream, tokenizer):
            if not document.text:
                continue
            ids, n_bytes = np.append(ids, ending), len(document.text.encode())
            shard.add(ids, n_bytes=n_bytes, domain=document.domain, source=document.source)
            progress.advance(len(ids))
            if shard.n_tokens >= config.shard_tokens:
                write_shard(staging, n_shards, shard, asdict(reading))
                n_shards, shard = n_shards + 1, Shard(tokenizer.vocab_size)
        if shard.rows:
            write_shard(staging, n_shards, shard, asdict(reading))
            n_shards += 1
    return n_shards, reading


def _separators_in_text(staging, n_shards, separator_id, reading):
    """How often the separator stands inside a document, because its text spells it."""
    if separator_id is None:
        return 0
    shards = (map_shard(staging.path / shard_name(number, "bin")) for number in range(n_shards))
    return sum(int(np.count_nonzero(ids == separator_id)) for ids in shards) - reading.n_documents


def _tokenized(stream, tokenizer):
    """Yield (document, reading, ids) in order, while later batches are read and tokenized."""
    pending = deque()
    with ThreadPoolExecutor(BATCHES_AHEAD) as pool:
        for batch in _batches(stream):
            texts = [document.text for document, _ in batch]
            pending.append((batch, pool.submit(tokenizer.encode_batch, texts)))
            if len(pending) > BATCHES_AHEAD:
                yield from _with_ids(*pending.popleft())
        while pending:
            yield from _with_ids(*pending.popleft())


def _with_ids(batch, tokenizing):
    for (document, reading), ids in zip(batch, tokenizing.result(), strict=True):
        yield document, reading, ids


def _batches(stream):
    batch, size = [], 0
    for document, reading in stream:
        batch.append((document, reading))
        size += len(document.text) + 1
        if size >= BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
