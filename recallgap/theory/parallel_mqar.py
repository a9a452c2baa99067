"""Parallel-MQAR (Zoology, algorithm 11, proposition H.30) over a batch, in numpy.

Level k = 0, 1, ... cuts the n triples into blocks of 2^(k+1). The keys of a block's left half are searched by
the queries of its right half, all blocks of a level at once. Each pair j < i meets at exactly one level: the
highest bit in which i and j differ. Where n is no power of two, the last block of a level is cut short.

Which level has the latest match: query i searches at the levels k where bit k of i is 1, and there the j that
agree with i above bit k and have bit k = 0: j in [s, s + 2^k) with s = i with its bits 0 to k cleared, and
s + 2^k <= i. At a level k' > k where bit k' of i is 1, j < i with its bits 0 to k' - 1 cleared <= s. So every
j of the higher level is earlier than every j of the lower one: the **lowest** level with a match has the
latest match, and within it the last of equal keys in order of time (`pbs_key_values`).
Legend: B sequences, n triples, d bits of a token.
"""

import numpy as np

from recallgap.errors import ConfigError
from recallgap.theory.finding import FAILS, HOLDS, Finding
from recallgap.theory.mqar import KINDS, NO_ANSWER, answers, random_triples
from recallgap.theory.pbs import pbs_key_values

WORD = 63
"""Bits of a number that holds block, token and place."""


def n_levels(n):
    """Levels that separate all pairs of n places."""
    return (n - 1).bit_length()


def parallel_mqar(keys_Bn, values_Bn, queries_Bn):
    """v_j of the latest j < i with k_j = q_i, or NO_ANSWER, (B, n); as `mqar.answers`, by algorithm 11."""
    keys_Bn, values_Bn, queries_Bn = (np.asarray(x_Bn) for x_Bn in (keys_Bn, values_Bn, queries_Bn))
    B, n = keys_Bn.shape
    levels = n_levels(n)
    d = _token_bits(keys_Bn, queries_Bn, B << levels)
    place_Bn = (np.arange(B) << levels)[:, None] + np.arange(n)  # as if n were 2^levels
    values, found = np.zeros((2, B << levels), dtype=np.int64)
    found[:] = NO_ANSWER
    values[place_Bn] = values_Bn
    for k in reversed(range(levels)):  # from far to near: a nearer match replaces
        in_right_n = (np.arange(n) >> k & 1).astype(bool)
        keys, key_places = _sorted(keys_Bn[:, ~in_right_n], place_Bn[:, ~in_right_n], k, d)
        queries, query_places = _sorted(queries_Bn[:, in_right_n], place_Bn[:, in_right_n], k, d)
        C = pbs_key_values(queries, keys)
        matched = len(keys) != C
        found[query_places[matched]] = values[key_places[C[matched]]]
    return found[place_Bn]


def _sorted(tokens, places, k, d):
    """Tokens of one half of all blocks of level k, sorted by (block, token, place): that token with its
    block, one number, and the place. One sort does all blocks, and equal tokens stay in order of time."""
    low = (1 << k + 1) - 1
    packed = np.sort((((places >> k + 1) << d | tokens) << k + 1 | places & low).ravel())
    return packed >> k + 1, packed >> k + 1 + d << k + 1 | packed & low


def _token_bits(keys_Bn, queries_Bn, n_places):
    """Bits that the tokens need; ConfigError where they and the places do not fit one word."""
    smallest = min(keys_Bn.min(initial=0), queries_Bn.min(initial=0))
    d = int(max(keys_Bn.max(initial=0), queries_Bn.max(initial=0))).bit_length()
    room = WORD - max(n_places - 1, 1).bit_length()
    if smallest < 0 or d > room:
        found = f"a token {smallest}" if smallest < 0 else f"tokens of {d} bits"
        raise ConfigError(
            f"Parallel-MQAR on {keys_Bn.shape[0]} sequences of {keys_Bn.shape[1]} triples: found {found}, "
            f"expected 0 to 2^{room} - 1; number the tokens from 0, or pass fewer sequences at once"
        )
    return d


SIZES_CHECKED = (1, 2, 3, 5, 8, 13, 21, 32, 64, 100, 128, 257, 512, 1000, 1024)


def check_parallel_mqar(rng, n_instances):
    """Against the literal scan, all kinds of triples."""
    cases = [(n, kind) for n in SIZES_CHECKED for kind in KINDS]
    wrong, done, B = 0, 0, -(-n_instances // len(cases))
    for n, kind in cases:
        keys_Bn, values_Bn, queries_Bn = random_triples(rng, B, n, int(rng.integers(11, 17)), kind)
        expected_Bn = answers(keys_Bn, values_Bn, queries_Bn)
        wrong += int((parallel_mqar(keys_Bn, values_Bn, queries_Bn) != expected_Bn).any(axis=1).sum())
        done += B
    return [
        Finding(
            statement="Proposition H.30",
            claim="Parallel-MQAR (algorithm 11) against the scan, n = 1 to 1024; latest of equal keys",
            bound="exact",
            measured=f"{wrong} wrong",
            instances=done,
            verdict=FAILS if wrong else HOLDS,
        )
    ]
