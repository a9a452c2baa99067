"""The distinct n-grams of an evaluation corpus, as sorted keys: what is counted.

keys of order 1   the token
keys of order 2   first token << 32 | second token
keys of order n   index of the (n-1)-gram prefix among the keys of order n - 1 << 32 | last token

So keys are sorted as their n-grams are, token by token. Every n-gram of the stream is a key, also one that
crosses a document border: a packed context may hold it.

Legend: T tokens of the corpus, K keys.
"""

import numpy as np

from recallgap.counts.table import HALF, HashTable
from recallgap.counts.tokens import checked_tokens

BLOCK = 1 << 24
"""n-grams sorted at a time."""


def key_orders(orders):
    """The orders whose keys are needed to count those asked for: an n-gram is found through its prefix.

    >>> key_orders((1, 4)), key_orders((3,))
    ([1, 2, 3, 4], [2, 3])
    """
    return [1] * (1 in orders) + list(range(2, max(orders) + 1))


def distinct_ngrams(corpus, orders):
    """{order: sorted distinct keys, uint64} for `key_orders(orders)`."""
    keys, prefix_T = {}, None
    for order in key_orders(orders):
        if order == 3:
            prefix_T = _ranks(corpus, 2, None, keys[2])
        elif order > 3:
            prefix_T = _ranks(corpus, order - 1, prefix_T, keys[order - 1])
        keys[order] = _distinct(_stream_keys(corpus, order, prefix_T))
    return keys


def _stream_keys(corpus, order, prefix_T):
    """Yield the keys of the n-grams of the stream, in stream order, a block at a time.

    prefix_T: index of the (n-1)-gram that starts at each token; None: the token itself, for order 2.
    """
    n_grams = max(corpus.n_tokens - order + 1, 0)
    for start in range(0, n_grams, BLOCK):
        stop = min(start + BLOCK, n_grams)
        last_T = checked_tokens(corpus, start + order - 1, stop + order - 1).astype(np.uint64)
        if order == 1:
            yield last_T
            continue
        first_T = checked_tokens(corpus, start, stop) if prefix_T is None else prefix_T[start:stop]
        yield first_T.astype(np.uint64) << HALF | last_T


def _distinct(blocks):
    found_K = np.empty(0, np.uint64)
    for keys_T in blocks:
        found_K = sort_distinct(np.concatenate([found_K, sort_distinct(keys_T)]))
    return found_K


def sort_distinct(keys):
    """The distinct keys, sorted. `np.unique` would hash them first, which is many times slower."""
    keys.sort()
    first = np.ones(len(keys), bool)
    np.not_equal(keys[1:], keys[:-1], out=first[1:])
    return keys[first]


def _ranks(corpus, order, prefix_T, keys_K):
    """Index among the keys of the n-gram that starts at each token, uint32."""
    table = HashTable(keys_K, np.arange(len(keys_K), dtype=np.uint64))
    blocks = _stream_keys(corpus, order, prefix_T)
    ranks = [table.slots_S2[table.find(keys_T), 1].astype(np.uint32) for keys_T in blocks]
    return np.concatenate([np.empty(0, np.uint32), *ranks])
