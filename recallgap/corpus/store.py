"""A tokenized corpus on disk: Megatron/GPT-NeoX indexed shards and a table of documents.

    tokens-00000.bin          little-endian token ids, document after document
    tokens-00000.idx          magic, version, dtype code, lengths, byte pointers, document index
    documents-00000.parquet   its documents: shard, offset (in tokens), n_tokens, n_bytes, domain, source
    tokenizer.json            where the corpus was made by a tokenizer
    inputs.json               where it was made from text: the files read, with size and sha256

The idx layout is Megatron-LM's, so GPT-NeoX and Megatron-LM read these shards as they are.
Legend: N documents; a trailing 1 means one more entry (borders).
"""

import hashlib
import json
import struct
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from recallgap.artifact import Opened, open_artifact
from recallgap.errors import CorpusError
from recallgap.staging import stage

READING_KEY = b"reading"
MAGIC = b"MMIDIDX\x00\x00"
DTYPE_CODES = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}
DOCUMENT_SCHEMA = pa.schema(
    [
        ("shard", pa.int32()),
        ("offset", pa.int64()),
        ("n_tokens", pa.int64()),
        ("n_bytes", pa.int64()),
        ("domain", pa.string()),
        ("source", pa.string()),
    ]
)


def token_dtype(vocab_size):
    """uint16 where every id fits, else int32.

    >>> token_dtype(65536), token_dtype(65537)
    (dtype('uint16'), dtype('int32'))
    """
    return np.dtype("<u2" if vocab_size <= 1 << 16 else "<i4")


@dataclass
class Shard:
    """Documents of token ids gathered for one shard. `add` checks that every id fits the vocabulary."""

    vocab_size: int
    ids: list = field(default_factory=list)
    rows: list = field(default_factory=list)
    n_tokens: int = 0

    def add(self, ids, *, n_bytes=0, domain="", source=""):
        ids = np.asarray(ids, dtype=np.int64)
        if ids.size and not 0 <= ids.min() <= ids.max() < self.vocab_size:
            position = int(np.flatnonzero((ids < 0) | (ids >= self.vocab_size))[0])
            raise CorpusError(
                f"writing document {len(self.rows)} of a corpus shard (source '{source}'): the id at "
                f"position {position} is {ids[position]}, but the vocabulary has {self.vocab_size} entries"
            )
        self.rows.append((self.n_tokens, ids.size, n_bytes, domain, source))
        self.ids.append(ids.astype(token_dtype(self.vocab_size)))
        self.n_tokens += ids.size


def shard_name(number, suffix):
    return f"tokens-{number:05d}.{suffix}"


def documents_name(number):
    return f"documents-{number:05d}.parquet"


def write_shard(staging, number, shard, reading=None):
    """Write one shard: ids, document rows, and last the index, the mark that the shard is done.

    reading: JSON values saying how far the input was read at the shard's end, kept in its document table.
    """
    with staging.write(shard_name(number, "bin")) as path, open(path, "wb") as file:
        for ids in shard.ids:
            file.write(memoryview(ids))
    offset, n_tokens, n_bytes, domain, source = zip(*shard.rows, strict=True) if shard.rows else [()] * 5
    columns = [[number] * len(offset), offset, n_tokens, n_bytes, domain, source]
    arrays = [pa.array(c, t) for c, t in zip(columns, DOCUMENT_SCHEMA.types, strict=True)]
    schema = DOCUMENT_SCHEMA.with_metadata({READING_KEY: json.dumps(reading, sort_keys=True)})
    with staging.write(documents_name(number)) as path:
        pq.write_table(pa.table(arrays, schema=schema), path, compression="zstd")
    with staging.write(shard_name(number, "idx")) as path:
        path.write_bytes(index_bytes(np.array(n_tokens, dtype=np.int64), token_dtype(shard.vocab_size)))


def finished_shards(staging):
    """(number of shards that are done, what `write_shard` was told as `reading` for the last of them)."""
    number = 0
    while staging.done(shard_name(number, "idx")):
        number += 1
    if number == 0:
        return 0, None
    schema = pq.read_schema(staging.path / documents_name(number - 1))
    return number, json.loads(schema.metadata[READING_KEY])


def index_bytes(lengths, dtype):
    """The bytes of a Megatron index of documents of one sequence each, laid end to end."""
    code = next(code for code, name in DTYPE_CODES.items() if np.dtype(name) == dtype)
    pointers = (np.cumsum(lengths) - lengths) * dtype.itemsize
    head = MAGIC + struct.pack("<QBQQ", 1, code, len(lengths), len(lengths) + 1)
    documents = np.arange(len(lengths) + 1, dtype="<i8")
    return head + lengths.astype("<i4").tobytes() + pointers.astype("<i8").tobytes() + documents.tobytes()


def corpus_totals(staging, n_shards):
    """The `results` of a corpus: documents, tokens and bytes, in all and by domain; its longest document."""
    totals = {"n_documents": 0, "n_tokens": 0, "n_bytes": 0, "n_shards": n_shards, "domains": {}}
    totals["longest_document"] = {"n_tokens": 0, "source": None}
    for number in range(n_shards):
        _add_totals(totals, pq.read_table(staging.path / documents_name(number)))
    return totals


def _add_totals(totals, table):
    totals["n_documents"] += table.num_rows
    n_tokens = table["n_tokens"].to_numpy()
    if n_tokens.size and n_tokens.max() > totals["longest_document"]["n_tokens"]:
        longest = int(n_tokens.argmax())
        source = table["source"][longest].as_py()
        totals["longest_document"] = {"n_tokens": int(n_tokens[longest]), "source": source}
    columns = [("n_tokens", "sum"), ("n_bytes", "sum"), ("shard", "count")]
    by_domain = table.group_by("domain").aggregate(columns)
    for row in by_domain.sort_by("domain").to_pylist():
        domain = totals["domains"].setdefault(row["domain"], {"n_documents": 0, "n_tokens": 0, "n_bytes": 0})
        domain["n_documents"] += row["shard_count"]
        for name in ("n_tokens", "n_bytes"):
            domain[name] += row[f"{name}_sum"]
            totals[name] += row[f"{name}_sum"]


class Corpus(Opened):
    """A tokenized corpus, opened. Token ids stay on disk; documents are numbered in stream order."""

    def __init__(self, opened):
        super().__init__(opened)
        self.vocab_size = opened.config["vocab_size"]
        self.separator_id = opened.config["separator_id"]
        """Id of the token that ends each document, or None."""
        self.tokenizer_fingerprint = opened.inputs["tokenizer"]
        """None where the corpus was written from ids without a tokenizer."""
        self.n_tokens = opened.results["n_tokens"]
        self.n_documents = opened.results["n_documents"]
        self._shards = [map_shard(path) for path in opened.files("tokens-") if path.suffix == ".bin"]
        self._shard_bounds = np.cumsum([0] + [len(ids) for ids in self._shards])

    @cached_property
    def documents(self):
        """The document table (pyarrow), one row a document in stream order."""
        return pa.concat_tables([pq.read_table(path) for path in self.artifact.files("documents-")])

    @cached_property
    def document_bounds_N1(self):
        """Borders of the documents in the stream of tokens, int64."""
        paths = self.artifact.files("documents-")  # one column of six: there may be 10^8 rows
        tables = [pq.read_table(path, columns=["n_tokens"]) for path in paths]
        lengths = pa.concat_tables(tables)["n_tokens"].to_numpy()
        return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])

    def ids(self, start, stop):
        """Token ids [start, stop) of the stream, in the stored dtype; a view if one shard has them all."""
        if not 0 <= start <= stop <= self.n_tokens:
            raise IndexError(f"tokens {start} to {stop} of a corpus of {self.n_tokens}")
        parts = []
        for shard, first in zip(self._shards, self._shard_bounds[:-1], strict=True):
            if start < first + len(shard) and stop > first:
                parts.append(shard[max(start - first, 0) : stop - first])
        if not parts:
            return np.empty(0, token_dtype(self.vocab_size))
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def tokenizer(self):
        """The tokenizer that made the corpus; CorpusError where it was written from ids without one."""
        from recallgap.corpus.tokenizer import Tokenizer, read_backend

        path = self.path / "tokenizer.json"
        if not path.is_file():
            raise CorpusError(
                f"opening the tokenizer of corpus {self.path}: it has none, it was written from ids; "
                "text can be decoded only in a corpus made from text, or imported with its tokenizer"
            )
        config = self.artifact.config
        return Tokenizer(str(path), read_backend(path), config["bos_id"], config["eos_id"])

    def document_of(self, position):
        """Number of the document that holds stream position(s) `position`."""
        return np.searchsorted(self.document_bounds_N1, position, side="right") - 1


def map_shard(path):
    """The ids of a .bin file as its .idx describes them; CorpusError where the two disagree."""
    head = path.with_suffix(".idx").read_bytes()[:34]
    if len(head) < 34 or head[:9] != MAGIC:
        raise CorpusError(f"reading {path.with_suffix('.idx')}: it does not start as a Megatron index does")
    version, code, _, _ = struct.unpack("<QBQQ", head[9:])
    if version != 1 or code not in DTYPE_CODES:
        known = f"version 1, dtype codes {sorted(DTYPE_CODES)}"
        raise CorpusError(
            f"reading index {path.stem}.idx: version {version}, dtype code {code}; known: {known}"
        )
    dtype, size = np.dtype(DTYPE_CODES[code]), path.stat().st_size
    if size % dtype.itemsize:
        raise CorpusError(f"reading {path}: {size} bytes is not a whole number of {dtype.itemsize}-byte ids")
    return np.memmap(path, dtype=dtype, mode="r") if size else np.empty(0, dtype)


def tokens_sha256(corpus):
    """sha256 (hex) of the whole stream of ids as little-endian int32: what labels and losses must share."""
    digest, block = hashlib.sha256(), 1 << 22
    for start in range(0, corpus.n_tokens, block):
        digest.update(corpus.ids(start, min(start + block, corpus.n_tokens)).astype("<i4").tobytes())
    return digest.hexdigest()


def open_corpus(path):
    """Open a corpus folder made by `build_corpus` or `write_corpus`."""
    return Corpus(open_artifact(path, "corpus"))


def write_corpus(path, documents, *, vocab_size, separator_id=None, tokenizer=None, overwrite=False):
    """Write documents of token ids (a list of 1-D integer arrays, or of (ids, domain) pairs) as a corpus.

    Nothing is appended: where `separator_id` is given, the documents hold it already.
    tokenizer: its fingerprint, where the ids came from one.
    """
    shard = Shard(vocab_size)
    for number, document in enumerate(documents):
        ids, domain = document if isinstance(document, tuple) else (document, "")
        shard.add(ids, domain=domain, source=str(number))
    config = {"vocab_size": vocab_size, "separator_id": separator_id}
    inputs = {"tokenizer": tokenizer, "text": None}
    with stage(path, kind="corpus", config=config, inputs=inputs, overwrite=overwrite) as staging:
        write_shard(staging, 0, shard)
        staging.results = corpus_totals(staging, 1)
    return open_corpus(Path(path))
