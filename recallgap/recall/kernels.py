"""In-context repeats, in compiled loops.

Within a context every n-gram gets a number, the slot it has in a hash table, so that what is known of it is
found by plain indexing. An n-gram is (number of its (n-1)-gram prefix, last token): equal numbers mean equal
n-grams, for any n and any 32-bit ids.

Legend: T tokens of the stream, C contexts, M tokens of one context, G n-grams of one context (named by their
first token), S slots; a trailing 1 means one more entry (borders).
"""

import numpy as np
from numba import njit

EMPTY = np.uint64((1 << 64) - 1)
"""No n-gram has this key: token ids end below 2^31."""
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
ONE, HALF = np.uint64(1), np.uint64(32)
SLOTS_PER_TOKEN = 4
"""At least so many: then nearly every look-up ends at the first slot, which is worth more than the cache."""


@njit(nogil=True, cache=True)
def _slot_bits(n_tokens):
    bits = 4
    while (1 << bits) < SLOTS_PER_TOKEN * n_tokens:
        bits += 1
    return bits


@njit(nogil=True, cache=True)
def _number(keys_S, bits, keys_G, n):
    """Replace each of the first n keys by its number. keys_S is working space."""
    mask, shift = np.uint64((1 << bits) - 1), np.uint64(64 - bits)
    keys_S[: 1 << bits] = EMPTY
    for i in range(n):
        key = keys_G[i]
        slot = (key * MULTIPLIER) >> shift
        # One condition, not two: whether a key is new cannot be predicted and should be no branch.
        while (keys_S[slot] != key) & (keys_S[slot] != EMPTY):
            slot = (slot + ONE) & mask
        keys_S[slot] = key
        keys_G[i] = slot


@njit(nogil=True, cache=True)
def _number_prefixes(tokens_M, order, keys_S, bits, numbers_G):
    """Number the (n-1)-grams of a context that a token follows. Pairs of tokens are keys as they are."""
    paired = 1 if order == 2 else 2
    n = len(tokens_M) - paired + 1
    for i in range(n):
        numbers_G[i] = np.uint64(tokens_M[i])
        if paired == 2:
            numbers_G[i] = numbers_G[i] << HALF | np.uint64(tokens_M[i + 1])
    _number(keys_S, bits, numbers_G, n)
    for length in range(paired + 1, order):
        n = len(tokens_M) - length + 1
        for i in range(n):
            numbers_G[i] = numbers_G[i] << HALF | np.uint64(tokens_M[i + length - 1])
        _number(keys_S, bits, numbers_G, n)


@njit(nogil=True, cache=True)
def find_repeats(tokens_T, bounds_C1, order, occurs_T, distance_T, first_distance_T, followers_T):
    """Fill the last three, zero before, for every context. occurs_T: where an n-gram that ends counts."""
    longest = 0
    for c in range(len(bounds_C1) - 1):
        longest = max(longest, bounds_C1[c + 1] - bounds_C1[c])
    keys_S = np.empty(1 << _slot_bits(longest), np.uint64)
    last_S, first_S = np.empty(len(keys_S), np.uint32), np.empty(len(keys_S), np.uint32)
    n_followers_S = np.empty(len(keys_S), np.uint32)
    prefix_G, ngram_G = np.empty(longest, np.uint64), np.empty(longest, np.uint64)
    for c in range(len(bounds_C1) - 1):
        tokens_M = tokens_T[bounds_C1[c] : bounds_C1[c + 1]]
        n = len(tokens_M) - order + 1
        if n < 1:
            continue
        bits = _slot_bits(len(tokens_M))
        _number_prefixes(tokens_M, order, keys_S, bits, prefix_G)
        for i in range(n):
            ngram_G[i] = prefix_G[i] << HALF | np.uint64(tokens_M[i + order - 1])
        _number(keys_S, bits, ngram_G, n)
        last_S[: 1 << bits] = 0
        n_followers_S[: 1 << bits] = 0
        end = bounds_C1[c] + order - 1
        for i in range(n):
            t, here, occurs = end + i, np.uint32(i + 1), np.uint32(occurs_T[end + i])
            ngram, prefix = ngram_G[i], prefix_G[i]
            new = last_S[ngram] == 0
            last = here if new else last_S[ngram]
            first = here if new else first_S[ngram]
            last_S[ngram], first_S[ngram] = here, first
            distance_T[t] = (here - last) * occurs
            first_distance_T[t] = (here - first) * occurs
            followers_T[t] = n_followers_S[prefix]
            n_followers_S[prefix] += np.uint32(new) & occurs
