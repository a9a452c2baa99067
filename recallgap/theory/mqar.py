"""Multi-query associative recall as the theory states it (Zoology, section H.7.1), and its literal algorithm.

A sequence of N tokens is n = N / 3 triples (k_i, v_i, q_i) of tokens 0 <= x < 2^d. The answer of i >= 1 is
v_j, where j < i is the latest with k_j = q_i (the paper says "some j"; where keys repeat it leaves open
which); without such a j there is none. Interaction distance: i - j.
Legend: B sequences, n triples, d bits of a token.
"""

import numpy as np

from recallgap.errors import ConfigError

NO_ANSWER = -1
KINDS = ("unique", "repeated", "no match", "all match")
"""Keys all differ (2^d >= 2n); few tokens, so keys repeat; no query is a key; each is an earlier key."""


def answers(keys_Bn, values_Bn, queries_Bn):
    """v_j of the latest j < i with k_j = q_i, or NO_ANSWER: the definition read literally, (B, n)."""
    found_Bn = np.full(keys_Bn.shape, NO_ANSWER, dtype=np.int64)
    for b, (keys, values, queries) in enumerate(zip(keys_Bn, values_Bn, queries_Bn, strict=True)):
        latest = {}
        for i in range(len(keys)):
            found_Bn[b, i] = latest.get(int(queries[i]), NO_ANSWER)
            latest[int(keys[i])] = int(values[i])
    return found_Bn


def random_triples(rng, B, n, d, kind):
    """Keys, values and queries (B, n) of a kind of KINDS, int64; ConfigError where d bits are too few."""
    needed = (2 * n - 1).bit_length() if kind in ("unique", "no match") else 1
    if d < needed:
        raise ConfigError(f"{n} triples of {kind} keys in tokens of {d} bits: they need at least {needed}")
    values_Bn = rng.integers(0, 2**d, (B, n))
    if kind in ("unique", "no match"):
        tokens_Bm = rng.permuted(np.tile(np.arange(min(2**d, 4 * n)), (B, 1)), axis=1)
        keys_Bn, strange_Bn = tokens_Bm[:, :n], tokens_Bm[:, n : 2 * n]
        queries_Bn = np.where(rng.random((B, n)) < 0.5, _earlier(rng, keys_Bn), strange_Bn)
        return keys_Bn, values_Bn, strange_Bn if kind == "no match" else queries_Bn
    few = min(2**d, max(2, n // 2))
    keys_Bn = rng.integers(0, few, (B, n))
    if kind == "all match":
        return keys_Bn, values_Bn, _earlier(rng, keys_Bn)
    return keys_Bn, values_Bn, rng.integers(0, few, (B, n))


def _earlier(rng, keys_Bn):
    """For each i a key of some j < i (of 0 for i = 0), (B, n)."""
    B, n = keys_Bn.shape
    j_Bn = rng.integers(0, np.maximum(np.arange(n), 1), (B, n))
    return np.take_along_axis(keys_Bn, j_Bn, axis=1)
