"""One pass over a token file: its hash, ids that cannot be, and the separators at which it is split."""

from dataclasses import dataclass, replace
from hashlib import sha256

import numpy as np

from recallgap.corpus.formats import TokenFile
from recallgap.errors import CorpusError


@dataclass(frozen=True, eq=False)
class Scanned:
    """A token file that was read to its end."""

    file: TokenFile
    """With its starts, whatever they were taken from."""
    sha256: str
    n_ends: int
    """How often the id stands in it that was looked for: the separator, else the tokenizer's EOS."""


def scan(file, vocab_size, separator_id, end_id, progress):
    """Read a token file once. It is split behind each separator, if nothing better says where documents end.

    end_id: the id to count. CorpusError names the first id that is not in the vocabulary.
    """
    is_split = separator_id is not None and (file.starts_N is None or file.are_sequences)
    digest, position, n_ends, borders = sha256(), 0, 0, []
    blocks = file.raw_blocks()
    digest.update(next(blocks))
    for ids in blocks:
        digest.update(ids)
        if ids.min() < 0 or ids.max() >= vocab_size:
            at = int(np.argmax((ids < 0) | (ids >= vocab_size)))
            raise CorpusError(
                f"importing {file.path}: the id at {file.place(position + at)} is {ids[at]}, but the "
                f"vocabulary has {vocab_size:,} entries; the file was made with another tokenizer, or is of "
                "another format"
            )
        if end_id is not None:
            n_ends += int(np.count_nonzero(ids == end_id))
        if is_split:
            borders.append(np.flatnonzero(ids == separator_id) + (position + 1))
        position += ids.size
        progress.advance(ids.size)
    if is_split:
        file = _with_starts(file, borders, "the separators")
    elif file.starts_N is None:
        file = _with_starts(file, [], "whole files")
    return Scanned(file, digest.hexdigest(), n_ends)


def _with_starts(file, borders, documents_from):
    """`file` with documents that start at 0 and at `borders`; nothing starts at its end."""
    starts_N = np.concatenate([np.zeros(1, np.int64), *borders])
    return replace(file, starts_N=starts_N[starts_N < file.n_tokens], documents_from=documents_from)
