"""How a token file becomes a shard of a corpus: a link to it, its document table and its index.

Legend: F files, N documents.
"""

import os
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from recallgap.corpus.store import (
    DOCUMENT_SCHEMA,
    DTYPE_CODES,
    documents_name,
    index_bytes,
    shard_name,
    token_dtype,
)
from recallgap.errors import CorpusError

LONGEST = (1 << 31) - 1
"""Tokens of the longest document that an index can hold."""
ROWS_PER_GROUP = 1 << 20
"""Documents written at once."""
LINKED_DTYPES = {np.dtype(name) for name in DTYPE_CODES.values()}


def document_lengths(files):
    """Tokens of the documents that start in each file, one array a file; they may end in a later file."""
    firsts_F1 = np.cumsum([0] + [file.n_tokens for file in files])
    starts_F = [file.starts_N + first for file, first in zip(files, firsts_F1[:-1], strict=True)]
    lengths = np.diff(np.concatenate([*starts_F, firsts_F1[-1:]]))
    lengths_F = np.split(lengths, np.cumsum([len(starts_N) for starts_N in starts_F])[:-1])
    for file, lengths_N in zip(files, lengths_F, strict=True):
        if lengths_N.max(initial=0) > LONGEST:
            document = int(np.argmax(lengths_N > LONGEST))
            raise CorpusError(
                f"importing {file.path}: document {document} (from 0) would have {lengths_N[document]:,} "
                f"tokens, but an index holds at most {LONGEST:,}; name the id that ends documents with "
                "--separator-id"
            )
    return lengths_F


def stored_dtype(file, vocab_size):
    """Type of the ids in the corpus: the file's own where it can be linked, else the smallest that fits."""
    return file.dtype if _can_be_linked(file) else token_dtype(vocab_size)


def _can_be_linked(file):
    """True where the file holds ids and nothing else, in a type that an index has a code for."""
    return file.header == 0 and file.dtype in LINKED_DTYPES


def link_shard(staging, number, file, lengths_N, *, vocab_size, domain):
    """Write shard `number`: the ids (a link, or a copy where that cannot be), its documents, its index."""
    name, dtype = shard_name(number, "bin"), stored_dtype(file, vocab_size)
    if _can_be_linked(file):
        link = staging.path / name
        link.unlink(missing_ok=True)
        link.symlink_to(os.path.abspath(file.path))  # links in the path are kept  # noqa: PTH100
    else:
        with staging.write(name) as path, open(path, "wb") as out:
            for ids in islice(file.raw_blocks(), 1, None):
                out.write(memoryview(ids.astype(dtype)))
    with staging.write(documents_name(number)) as path:
        _write_documents(path, number, file, lengths_N, domain)
    with staging.write(shard_name(number, "idx")) as path:
        path.write_bytes(index_bytes(_pieces(file), dtype))


def _write_documents(path, number, file, lengths_N, domain):
    """The document table: documents that start in the file, with their whole length."""
    with pq.ParquetWriter(path, DOCUMENT_SCHEMA, compression="zstd") as writer:
        for first in range(0, max(len(lengths_N), 1), ROWS_PER_GROUP):
            starts_N, lengths = (a[first : first + ROWS_PER_GROUP] for a in (file.starts_N, lengths_N))
            n = len(lengths)
            lines = pa.array(np.arange(first + 1, first + n + 1)).cast(pa.string())
            columns = {
                "shard": pa.array(np.full(n, number, np.int32)),
                "offset": pa.array(starts_N),
                "n_tokens": pa.array(lengths),
                "n_bytes": pa.array(np.zeros(n, np.int64)),
                "domain": pa.repeat(domain, n),
                "source": pc.binary_join_element_wise(file.name, lines, ":"),
            }
            writer.write_table(pa.table(columns, schema=DOCUMENT_SCHEMA))


def _pieces(file):
    """Lengths of what lies in the file itself: its documents, cut where they go on beyond its ends."""
    starts_N = file.starts_N
    lead = [0] if len(starts_N) == 0 or starts_N[0] > 0 else []
    return np.diff(np.concatenate([lead, starts_N, [file.n_tokens]]).astype(np.int64))
