"""Megatron-LM and GPT-NeoX: `NAME.bin` with the ids, `NAME.idx` with where sequences and documents end.

The index, all little-endian: magic, version 1 (u64), dtype code (u8), number of sequences (u64), number of
document borders (u64); then length in tokens (i32) and byte pointer (i64) of each sequence, and the document
borders (i64), counted in sequences. A document is one or more sequences. Builders that were never told where
a document ends (GPT-NeoX's merge, Pythia's preshuffling) leave the single border 0: then documents are split
at the separator, where one is named, and else each sequence is taken as a document.
Sources: NVIDIA/Megatron-LM, megatron/core/datasets/indexed_dataset.py; EleutherAI/gpt-neox,
megatron/data/indexed_dataset.py.

Legend: S sequences, N documents; a trailing 1 means one more entry (borders).
"""

import struct
from pathlib import Path

import numpy as np

from recallgap.corpus.formats.token_file import TokenFile, existing_file, whole_ids
from recallgap.corpus.store import DTYPE_CODES, MAGIC
from recallgap.errors import CorpusError

HEAD = struct.Struct("<9sQBQQ")
OLD_MAGIC = b"TNTIDX\x00\x00"


def read_megatron(paths):
    """Megatron-LM / GPT-NeoX NAME.bin and NAME.idx; documents from the index"""
    return [_token_file(Path(path)) for path in paths]


def _token_file(path):
    stem = path.with_suffix("") if path.suffix in (".bin", ".idx") else path
    bin_path, idx_path = (existing_file(f"{stem}{suffix}") for suffix in (".bin", ".idx"))
    doing = f"importing {idx_path}"
    with open(idx_path, "rb") as file:
        dtype, n_sequences, n_borders = _head(doing, file.read(HEAD.size), idx_path.stat().st_size)
        lengths_S = np.fromfile(file, "<i4", n_sequences)
        pointers_S = np.fromfile(file, "<i8", n_sequences)
        borders_N1 = np.fromfile(file, "<i8", n_borders)
    n_tokens = whole_ids(bin_path, dtype)
    starts_S1 = _sequence_starts(doing, lengths_S, pointers_S, dtype)
    if starts_S1[-1] != n_tokens:
        raise CorpusError(
            f"{doing}: its sequences have {starts_S1[-1]:,} tokens in all, but {bin_path.name} holds "
            f"{n_tokens:,}; the two do not belong together, or one of them is cut off"
        )
    has_documents = n_borders > 1
    if has_documents:
        _check_borders(doing, borders_N1, n_sequences)
    return TokenFile(
        path=bin_path,
        dtype=dtype,
        beside=(idx_path,),
        starts_N=starts_S1[borders_N1[:-1]] if has_documents else starts_S1[:-1],
        documents_from="the document index"
        if has_documents
        else "the sequences of an index without documents",
        are_sequences=not has_documents,
    )


def _head(doing, head, size):
    """(dtype, number of sequences, number of document borders), checked against the size of the index."""
    if head.startswith(OLD_MAGIC):
        raise CorpusError(
            f"{doing}: it is of the older TNTIDX format; make it again with --dataset-impl mmap"
        )
    if len(head) < HEAD.size or not head.startswith(MAGIC):
        raise CorpusError(f"{doing}: it does not start as a Megatron index does")
    _, version, code, n_sequences, n_borders = HEAD.unpack(head)
    if version != 1 or code not in DTYPE_CODES:
        known = f"version 1 and the dtype codes {sorted(DTYPE_CODES)} can be read"
        raise CorpusError(f"{doing}: it has version {version} and dtype code {code}, but {known}")
    expected = HEAD.size + 12 * n_sequences + 8 * n_borders
    if size != expected:
        modes = (
            "; it looks multimodal, of which text alone can be read" if size == expected + n_sequences else ""
        )
        raise CorpusError(
            f"{doing}: {n_sequences:,} sequences and {n_borders:,} document borders need {expected:,} bytes, "
            f"but it has {size:,}{modes or '; it is damaged or cut off'}"
        )
    return np.dtype(DTYPE_CODES[code]), n_sequences, n_borders


def _sequence_starts(doing, lengths_S, pointers_S, dtype):
    """Where each sequence starts, in tokens, and where the last one ends; they must lie end to end."""
    if lengths_S.size and lengths_S.min() < 0:
        first = int(np.argmax(lengths_S < 0))
        raise CorpusError(
            f"{doing}: sequence {first} has a length of {lengths_S[first]}; the index is damaged"
        )
    starts_S1 = np.concatenate([[0], np.cumsum(lengths_S, dtype=np.int64)])
    wrong = pointers_S != starts_S1[:-1] * dtype.itemsize
    if wrong.any():
        first = int(np.argmax(wrong))
        raise CorpusError(
            f"{doing}: sequence {first} of {len(lengths_S)} starts at byte {pointers_S[first]}, but those "
            f"before it end at byte {starts_S1[first] * dtype.itemsize}; the index is damaged, or its "
            "sequences are not stored in order and without gaps"
        )
    return starts_S1


def _check_borders(doing, borders_N1, n_sequences):
    falls = np.diff(borders_N1) < 0
    if borders_N1[0] != 0 or falls.any():
        first = int(np.argmax(falls)) + 1 if borders_N1[0] == 0 else 0
        raise CorpusError(
            f"{doing}: border {first} of its document index is sequence {borders_N1[first]}, but borders "
            "start at 0 and never fall; the index is damaged"
        )
    if borders_N1[-1] != n_sequences:
        raise CorpusError(
            f"{doing}: its document index ends at sequence {borders_N1[-1]} of {n_sequences}; it is damaged, "
            "or was merged by a tool that keeps no documents: import the parts it was merged from instead"
        )
