"""Which tokens repeat an n-gram of their context, and which of these are AR hits: pure functions on arrays.

Legend: T tokens of the stream, C contexts; a trailing 1 means one more entry (borders).
"""

from typing import NamedTuple

import numpy as np

from recallgap.errors import ConfigError, CorpusError
from recallgap.recall.kernels import find_repeats
from recallgap.registry import pick

SEPARATORS = {
    "drop": "an n-gram that holds a document separator never occurs",
    "keep": "a separator is a token like any other",
}
MAX_ID = (1 << 31) - 1


class Repeats(NamedTuple):
    """What each token repeats of its context. Entry t speaks of the n-gram that ends with token t."""

    distance_T: np.ndarray
    """Tokens back to the latest earlier occurrence of the n-gram in this context, uint32; 0: none."""
    first_distance_T: np.ndarray
    """The same to the first occurrence."""
    followers_T: np.ndarray
    """Number of distinct tokens that followed its prefix of n - 1 tokens earlier in this context, uint32."""


def repeats(ids_T, bounds_C1, *, order=2, separator_id=None, separators="drop"):
    """Find, for every token, the earlier occurrences of the n-gram it ends; returns `Repeats`.

    bounds_C1: borders of the contexts; nothing is repeated across one. separators: one of SEPARATORS; "drop"
    needs a separator_id to have an effect. Any ids from 0 to 2^31 - 1, any order from 2; exact.

    >>> ids = np.array([7, 8, 9, 7, 8, 8])
    >>> repeats(ids, [0, 6]).distance_T.tolist()
    [0, 0, 0, 0, 3, 0]
    >>> repeats(ids, [0, 6]).followers_T.tolist()
    [0, 0, 0, 0, 1, 1]
    >>> repeats(ids, [0, 3, 6]).distance_T.tolist()
    [0, 0, 0, 0, 0, 0]
    """
    pick("separator policy", SEPARATORS, separators)
    if order < 2:
        raise ConfigError(f"order is {order}, but recall needs an n-gram with a prefix: at least 2")
    ids_T = np.asarray(ids_T)
    if ids_T.size and not 0 <= ids_T.min() <= ids_T.max() <= MAX_ID:
        raise CorpusError(
            f"finding repeats: ids go from {ids_T.min()} to {ids_T.max()}, beyond 0 to {MAX_ID}"
        )
    occurs_T = np.ones(len(ids_T), bool)
    if separators == "drop" and separator_id is not None:
        occurs_T = _without(ids_T == separator_id, order)
    found = Repeats(*(np.zeros(len(ids_T), np.uint32) for _ in Repeats._fields))
    find_repeats(ids_T.astype(np.uint32), np.asarray(bounds_C1, dtype=np.int64), order, occurs_T, *found)
    return found


def _without(marked_T, order):
    """True where none of the last `order` tokens is marked."""
    clear_T = ~marked_T
    for back in range(1, min(order, len(marked_T))):
        clear_T[back:] &= ~marked_T[:-back]
    return clear_T


def ar_hits(distance_T, train_count_T, max_train_count):
    """True where a token repeats an n-gram of its context that is rare in training.

    The last token of an n-gram that occurred earlier in its context and at most `max_train_count` times
    (inclusive) in training (arXiv 2312.04927, section 3.1, there with bigrams and 1250).

    >>> ar_hits(np.array([0, 4, 4]), np.array([1, 1250, 1251], dtype=np.uint64), 1250).tolist()
    [False, True, False]
    """
    return (distance_T > 0) & (train_count_T <= np.uint64(max_train_count))
