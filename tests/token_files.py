"""Token files of other tools, written literally from the descriptions of their formats."""

import itertools
import struct

from recallgap.corpus import ImportConfig, import_corpus

V = 120
"""Vocabulary: what the narrowest type of id, int8, can hold."""
TYPES = {1: "B", 2: "b", 3: "h", 4: "i", 5: "q", 8: "H"}
"""Megatron's dtype codes and how struct spells them."""


def megatron_index(lengths, itemsize, code, borders):
    """The bytes of an .idx, field by field."""
    pointers = [0, *itertools.accumulate(n * itemsize for n in lengths)][: len(lengths)]
    return b"".join(
        [
            b"MMIDIDX\x00\x00",
            struct.pack("<Q", 1),
            struct.pack("<B", code),
            struct.pack("<Q", len(lengths)),
            struct.pack("<Q", len(borders)),
            *(struct.pack("<i", length) for length in lengths),
            *(struct.pack("<q", pointer) for pointer in pointers),
            *(struct.pack("<q", border) for border in borders),
        ]
    )


def write_megatron(prefix, documents, *, code=8, has_documents=True):
    """Write `documents` (each a list of sequences of ids) as prefix.bin and prefix.idx; returns the .bin."""
    sequences = [sequence for document in documents for sequence in document]
    borders = [0, *itertools.accumulate(map(len, documents))] if has_documents else [0]
    raw = b"".join(struct.pack(f"<{len(s)}{TYPES[code]}", *s) for s in sequences)
    prefix.with_name(prefix.name + ".bin").write_bytes(raw)
    index = megatron_index([len(s) for s in sequences], struct.calcsize(TYPES[code]), code, borders)
    prefix.with_name(prefix.name + ".idx").write_bytes(index)
    return prefix.with_name(prefix.name + ".bin")


def write_uint16(path, ids):
    """A file of little-endian uint16 ids and nothing else, as nanoGPT and Pythia have it."""
    path.write_bytes(struct.pack(f"<{len(ids)}H", *ids))
    return path


def documents_of(corpus):
    """The documents of a corpus as lists of ids, from its stream and its document table."""
    bounds = corpus.document_bounds_N1.tolist()
    return [corpus.ids(start, stop).tolist() for start, stop in itertools.pairwise(bounds)]


def split_at(ids, separator):
    """The stream cut behind each separator: the definition read literally."""
    documents, document = [], []
    for token in ids:
        document.append(token)
        if token == separator:
            documents.append(document)
            document = []
    return [*documents, document] if document else documents


def joined(lists):
    """One list of what several hold."""
    return list(itertools.chain(*lists))


def imported(paths, out, format, **options):
    """The corpus of one path or several, of V ids."""
    paths = paths if isinstance(paths, list) else [paths]
    return import_corpus(paths, out, config=ImportConfig(format=format, vocab_size=V, **options))
