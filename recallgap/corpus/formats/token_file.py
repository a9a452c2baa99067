"""What every format yields: files of token ids, and where documents start in them."""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from recallgap.errors import CorpusError

BLOCK = 1 << 22
"""Ids read at once."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TokenFile:
    """A file that holds token ids one after another. The files of an import make up one stream, in order."""

    path: Path
    dtype: np.dtype
    header: int = 0
    """Bytes before the first id."""
    beside: tuple[Path, ...] = ()
    """Files that describe this one: hashed and recorded with it."""
    starts_N: np.ndarray | None = None
    """Positions (in tokens of this file, int64, in order) at which a document starts, also an empty one;
    tokens before the first belong to the last document of the file before. None: the format does not say."""
    documents_from: str | None = None
    """What the starts were taken from, in words; None where they are."""
    are_sequences: bool = False
    """The starts are those of sequences, as no documents are named: a separator, if any, says more."""

    @property
    def name(self):
        """Its file name as text: names are bytes to the system, and need not be UTF-8."""
        return os.fsencode(self.path.name).decode(errors="replace")

    @property
    def n_tokens(self):
        return (self.path.stat().st_size - self.header) // self.dtype.itemsize

    def place(self, position):
        """A token of this file, in words: its position, and its document where those are known."""
        document = -1
        if self.starts_N is not None:
            document += int(np.searchsorted(self.starts_N, position, side="right"))
        if document < 0:
            return f"position {position}"
        within = position - int(self.starts_N[document])
        return f"position {position} (token {within} of document {document}, both from 0)"

    def raw_blocks(self):
        """The whole file as arrays, in order: its header as bytes (uint8), then its ids block by block."""
        left = self.n_tokens
        with open(self.path, "rb") as file:
            yield np.fromfile(file, np.uint8, self.header)
            while left:
                ids = np.fromfile(file, self.dtype, min(left, BLOCK))
                if ids.size == 0:
                    raise CorpusError(
                        f"importing {self.path}: it became shorter while it was read; try again"
                    )
                left -= ids.size
                yield ids


def existing_file(path):
    """`path` as a Path; CorpusError unless a file is there."""
    path = Path(path)
    if path.is_dir():
        raise CorpusError(f"importing {path}: it is a folder; name the files in it, in the order wanted")
    if not path.is_file():
        raise CorpusError(f"importing {path}: there is no such file")
    return path


def whole_ids(path, dtype):
    """Number of ids in a file without a header; CorpusError where its size is no whole number of them."""
    size = path.stat().st_size
    if size % dtype.itemsize:
        raise CorpusError(
            f"importing {path}: {size:,} bytes is not a whole number of {dtype.itemsize}-byte ids, so it is "
            "cut off or of another format"
        )
    return size // dtype.itemsize
