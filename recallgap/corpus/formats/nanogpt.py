"""nanoGPT: a file of uint16 ids, nothing else; its scripts end documents with <|endoftext|> (GPT-2: 50256).

Each file is a stream of its own: no document goes on from one into the next.
"""

import struct

import numpy as np

from recallgap.corpus.formats.token_file import TokenFile, existing_file, whole_ids
from recallgap.errors import CorpusError

DTYPE = np.dtype("<u2")
OTHERS = {
    b"\x93NUMPY": "a NumPy file: use --format npy",
    **dict.fromkeys(
        (struct.pack("<i", magic) for magic in (20240520, 20240801)),
        "an llm.c file: cut its 1024-byte header off (tail -c +1025)",
    ),
}
"""How files begin that are easily mistaken for this format."""


def read_nanogpt(paths):
    """nanoGPT .bin: uint16 ids without a header; documents split at --separator-id"""
    files = [existing_file(path) for path in paths]
    for path in files:
        with open(path, "rb") as file:
            start = file.read(8)
        for magic, what in OTHERS.items():
            if start.startswith(magic):
                raise CorpusError(f"importing {path}: it begins as {what}")
        whole_ids(path, DTYPE)
    return [TokenFile(path=path, dtype=DTYPE) for path in files]
