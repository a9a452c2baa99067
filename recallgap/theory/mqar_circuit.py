"""Parallel-MQAR (Zoology, algorithm 11) as an arithmetic circuit, proposition H.36.

N = 3 n tokens of d bits in; out, for each of the n triples, whether its query has an answer, and the d bits
of the answer (0s without one). Levels and blocks are those of theory/parallel_mqar.py; the lowest level with
a match wins.

The paper sorts the keys and queries of every level from scratch, which with Batcher's network would make
O(N d log^3 N) gates. Here each level merges the sorted blocks of the level below, and the results of all
levels go back down one common way, each joining where its level was sorted:

    up,   k = 0, 1, ...: search the left blocks by the right blocks; merge pairs of blocks, keys and queries;
    down, k = ..., 1, 0: take the results of level k where it found any (near before far); undo the merges of
                         level k - 1.

One sort up and one way down for all levels: O(N d log^2 N) gates and O(log d log^2 N) levels, the bound of
H.36, with Batcher's merge and without the network of Ajtai, Komlos and Szemeredi.

Equal keys: each key has a bit "latest": of the equal keys of a block only the latest has it. A merge orders
by (token, latest, half), so of equal tokens the last in order is the latest of the right half, else that of
the left half; the bit is then renewed by comparing neighbours.
Legend: n triples, d bits, K levels, half = 2^k; flat arrays hold the blocks of a level one after the other.
"""

import numpy as np

from recallgap.errors import ConfigError
from recallgap.theory.bounds import h36_bounds, ratios, spread
from recallgap.theory.circuit import Builder
from recallgap.theory.comparators import complement, from_bits, to_bits
from recallgap.theory.finding import FAILS, HOLDS, Finding
from recallgap.theory.mqar import KINDS, NO_ANSWER, answers, random_triples
from recallgap.theory.parallel_mqar import n_levels
from recallgap.theory.pbs import last_of_equals, search
from recallgap.theory.sorting import merge_network, run_network, undo_network


def mqar_circuit(N, d):
    """Circuit of N tokens (k_0, v_0, q_0, k_1, ...) of d bits; outputs (n, 1 + d): found, bits of answer."""
    check_sizes(N, d)
    builder, n, K = Builder(), N // 3, n_levels(N // 3)
    tokens = builder.inputs(n, 3, d)
    keys = np.concatenate([tokens[:, 0], _ones(builder, n), tokens[:, 1]], axis=1)  # token, latest, value
    queries, found, query_flags = tokens[:, 2].copy(), [], []
    for k in range(K):
        found.append(np.zeros((n, 1 + d), np.int32))
        for places in block_pairs(n, k):
            left, right = keys[places[:, : 1 << k]], places[:, 1 << k :]
            found[k][right] = search(builder, queries[right], left[..., :d], left[..., d], left[..., d + 1 :])
        if k < K - 1:
            query_flags.append([_merge_queries(builder, queries, places, k) for places in block_pairs(n, k)])
            for places in block_pairs(n, k):
                _merge_keys(builder, keys, places, k, d)

    results = np.full((n, 1 + d), builder.constant(0))
    for k in reversed(range(K)):
        for places in block_pairs(n, k):
            right = places[:, 1 << k :]
            results[right] = _near_else_far(builder, found[k][right], results[right])
        if k > 0:
            for places, flags in zip(block_pairs(n, k - 1), query_flags[k - 1], strict=True):
                network = merge_network(1 << k - 1, places.shape[1] - (1 << k - 1))
                results[places] = undo_network(builder, network, results[places], flags)
    return builder.build([results])


def check_sizes(N, d):
    """ConfigError, with the smallest size that works, where N is no multiple of 3 or d has no bits."""
    if N < 3 or N % 3:
        larger = max(3, -(-N // 3) * 3)
        raise ConfigError(
            f"an MQAR circuit of N = {N} tokens: N is 3 tokens a triple; the next that works is {larger}"
        )
    if d < 1:
        raise ConfigError(f"an MQAR circuit of tokens of {d} bits: the smallest that works is 1")


def block_pairs(n, k):
    """Places of the pairs of blocks of level k, (pairs, left + right): the whole ones, and one cut short."""
    whole, length = n >> k + 1, 2 << k
    if whole:
        yield np.arange(whole * length).reshape(whole, length)
    if n - whole * length > length // 2:
        yield np.arange(whole * length, n)[None]


def _ones(builder, n):
    return np.full((n, 1), builder.constant(1))


def _merge_queries(builder, queries, places, k):
    half = 1 << k
    network = merge_network(half, places.shape[1] - half)
    queries[places], flags = run_network(builder, network, queries[places], queries.shape[1])
    return flags


def _merge_keys(builder, keys, places, k, d):
    half = 1 << k
    network = merge_network(half, places.shape[1] - half)
    side = builder.constants((np.arange(places.shape[1]) >= half).astype(int))
    side = np.broadcast_to(side[:, None], (*places.shape, 1))
    old = keys[places]
    elements = np.concatenate([old[..., : d + 1], side, old[..., d + 1 :]], axis=-1)
    elements, _ = run_network(builder, network, elements, d + 2)
    tokens, values = elements[..., :d], elements[..., d + 2 :]
    latest = last_of_equals(builder, tokens)[..., None]
    keys[places] = np.concatenate([tokens, latest, values], axis=-1)


def _near_else_far(builder, near, far):
    """near where its first wire, found, is 1, else far; without a match all wires are 0."""
    return builder.add(near, builder.multiply(complement(builder, near[..., :1]), far))


def solve(circuit, keys_Bn, values_Bn, queries_Bn, d):
    """The answers (B, n) that an MQAR circuit gives, decoded as `mqar.answers` has them."""
    tokens_Bn3d = to_bits(np.stack([keys_Bn, values_Bn, queries_Bn], axis=-1), d)
    outputs_Bnw = circuit.evaluate(tokens_Bn3d.reshape(len(keys_Bn), -1)).reshape(*keys_Bn.shape, 1 + d)
    return np.where(outputs_Bnw[..., 0] == 1, from_bits(outputs_Bnw[..., 1:]), NO_ANSWER)


SIZES_CHECKED = (1, 2, 3, 4, 5, 7, 8, 13, 16, 23, 32, 47, 64)
SIZES_MEASURED = tuple((n, d) for n in (4, 8, 16, 32, 64) for d in (4, 16))


def check_mqar_circuit(rng, n_instances):
    """The circuit against the literal scan, all kinds of triples; its measures against proposition H.36."""
    wrong, done, B = 0, 0, -(-n_instances // (len(SIZES_CHECKED) * len(KINDS)))
    for n in SIZES_CHECKED:
        d = max(1, (2 * n - 1).bit_length()) + int(rng.integers(0, 2))
        circuit = mqar_circuit(3 * n, d)
        for kind in KINDS:
            triples = random_triples(rng, B, n, d, kind)
            wrong += int((solve(circuit, *triples, d) != answers(*triples)).any(axis=1).sum())
            done += B
    rows = [ratios(mqar_circuit(3 * n, d).measure(), h36_bounds(3 * n, d)) for n, d in SIZES_MEASURED]
    return [
        Finding(
            statement="Proposition H.36",
            claim="Parallel-MQAR as a circuit against the scan, n = 1 to 64; latest of equal keys",
            bound="exact",
            measured=f"{wrong} wrong",
            instances=done,
            verdict=FAILS if wrong else HOLDS,
        ),
        Finding(
            statement="Proposition H.36",
            claim="size, depth, width over the bound, with Batcher's merges shared by the levels",
            bound="O(N d log^2 N), O(log d log^2 N), O(N d log N)",
            measured=f"{spread(rows)}; N = 12 to 192, d = 4, 16",
            instances=0,
            verdict=HOLDS,
        ),
    ]
