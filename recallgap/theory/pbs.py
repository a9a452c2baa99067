"""pbs-key-values, parallel binary search (Zoology, algorithm 10, proposition H.33), as code and as a circuit.

Given sorted queries and sorted keys, C[i] is the index of the key that equals query i, or m where none does.
The algorithm searches the middle query in all keys and recurses on both sides of where it fell. It does not
say which of several equal keys it finds; here it is the **last**, so that keys sorted by (key, time) give the
latest. As code, the binary searches of all queries run side by side (`numpy.searchsorted`).

As a circuit, the recursion itself is out of reach: how many keys lie left of the middle query depends on the
data, and gates are fixed, so each of the 2^t searches of recursion level t would need room for all m keys,
O(n m d) gates in total. The proof of H.33 counts O(d n) a level, as if the ranges were known. Built here
instead, within the bound:

1. merge keys and queries into one sorted list, a key before an equal query (Batcher's merge; its flags stay);
2. carry the nearest key down the list: a prefix scan of "the later one, if it is a key", 2 L operations in
   2 log2 L levels (Brent and Kung). Only the last of equal keys takes part, since the merge may shuffle them;
3. a query has found its key where the carried one equals it;
4. send the results back through the merge, by its flags.

Indices as data are thereby not needed: what belongs to a key (its value, or its index) travels with it.
Legend: n queries, m keys, d bits, P wires that belong to a key, L = n + m; leading axes are problems side by
side.
"""

import numpy as np

from recallgap.errors import ConfigError
from recallgap.theory.bounds import h33_bounds, ratios, spread
from recallgap.theory.circuit import Builder
from recallgap.theory.comparators import compare, complement, to_bits
from recallgap.theory.finding import ERRATUM, FAILS, HOLDS, Finding
from recallgap.theory.sorting import merge_network, run_network, undo_network


def pbs_key_values(queries_n, keys_m):
    """For each sorted query the index of the last sorted key that equals it, or m."""
    m = len(keys_m)
    last_n = np.searchsorted(keys_m, queries_n, side="right") - 1
    found_n = last_n >= 0
    found_n[found_n] = keys_m[last_n[found_n]] == queries_n[found_n]
    return np.where(found_n, last_n, m)


def last_of_equals(builder, keys):
    """Wires (..., m): 1 where a key of the sorted keys (..., m, d) differs from the next, or is the last."""
    _, equal = compare(builder, keys[..., :-1, :], keys[..., 1:, :])
    last = np.broadcast_to(builder.constant(1), (*equal.shape[:-1], 1))
    return np.concatenate([complement(builder, equal), last], axis=-1)


def search(builder, queries, keys, last, payload):
    """Wires (..., n, 1 + P): whether a query is among the keys, and what belongs to that key, or 0s.

    queries (..., n, d) and keys (..., m, d) are sorted; last (..., m) is of `last_of_equals`; payload
    (..., m, P).
    """
    n, d, m = queries.shape[-2], queries.shape[-1], keys.shape[-2]
    network = merge_network(m, n)
    of_key = np.concatenate([last[..., None], payload], axis=-1)
    zeros = np.broadcast_to(builder.constant(0), (*queries.shape[:-1], of_key.shape[-1]))
    key_elements = np.concatenate([keys, _column(builder, keys, 0), of_key], axis=-1)
    query_elements = np.concatenate([queries, _column(builder, queries, 1), zeros], axis=-1)
    elements = np.concatenate([key_elements, query_elements], axis=-2)
    elements, flags = run_network(builder, network, elements, d + 1)  # the side decides between equals

    tokens, of_key = elements[..., :d], elements[..., d + 1 :]
    carried = _scan(builder, np.concatenate([of_key, tokens], axis=-1))
    is_key, payload, key = carried[..., :1], carried[..., 1:-d], carried[..., -d:]
    _, equal = compare(builder, tokens, key)
    found = builder.multiply(is_key, equal[..., None])
    results = np.concatenate([found, builder.multiply(found, payload)], axis=-1)
    return undo_network(builder, network, results, flags)[..., m:, :]


def _column(builder, elements, value):
    return np.broadcast_to(builder.constant(value), (*elements.shape[:-1], 1))


def _scan(builder, x):
    """Entry l of the result: the last of x[..., :l + 1, :] whose first wire is 1 (else one whose is 0)."""
    length = x.shape[-2]
    if length == 1:
        return x
    earlier, later = x[..., : length - 1 : 2, :], x[..., 1::2, :]
    scanned, result = _scan(builder, _later_if_key(builder, earlier, later)), x.copy()
    result[..., 1::2, :] = scanned
    rest = x[..., 2::2, :]
    result[..., 2::2, :] = _later_if_key(builder, scanned[..., : rest.shape[-2], :], rest)
    return result


def _later_if_key(builder, earlier, later):
    chosen = builder.multiply(later[..., :1], builder.subtract(later, earlier))
    return builder.add(earlier, chosen)


def pbs_circuit(n, m, d):
    """Circuit of n sorted queries and m sorted keys of d bits, with the outputs C[0 .. n-1], integers."""
    if min(n, m, d) < 1:
        raise ConfigError(
            f"pbs-key-values of {n} queries, {m} keys and {d} bits: the smallest has 1, 1 and 1"
        )
    builder = Builder()
    queries, keys = builder.inputs(n, d), builder.inputs(m, d)
    below_m = builder.constants(np.arange(m) - m)[:, None]
    offset = search(builder, queries, keys, last_of_equals(builder, keys), below_m)[:, 1]
    return builder.build([builder.add(offset, builder.constant(m))])


SIZES_MEASURED = tuple((n, d) for n in (4, 8, 16, 32, 64, 128) for d in (4, 16))
SIZES_CHECKED = ((1, 1), (1, 5), (4, 1), (2, 3), (4, 4), (5, 8), (7, 7), (9, 4), (16, 16), (12, 31), (32, 32))


def check_pbs(rng, n_instances):
    """The code and the circuit against the recursion; proposition H.33, and where its bound cannot be."""
    wrong, B = 0, -(-n_instances // len(SIZES_CHECKED))
    for n, m in SIZES_CHECKED:
        d = int(rng.integers(1, 8))
        queries_Bn = np.sort(rng.integers(0, 2**d, (B, n)))
        keys_Bm = np.sort(rng.integers(0, 2**d, (B, m)))
        inputs = [to_bits(x, d).reshape(B, -1) for x in (queries_Bn, keys_Bm)]
        by_circuit_Bn = pbs_circuit(n, m, d).evaluate(np.concatenate(inputs, axis=1))
        for queries, keys, by_circuit in zip(queries_Bn, keys_Bm, by_circuit_Bn, strict=True):
            expected = recursive_pbs(queries.tolist(), keys.tolist())
            fast = pbs_key_values(queries, keys)
            wrong += fast.tolist() != expected or by_circuit.tolist() != expected
    rows = [ratios(pbs_circuit(n, n, d).measure(), h33_bounds(n, n, d)) for n, d in SIZES_MEASURED]
    few = pbs_circuit(2, 256, 8).measure()
    bound = h33_bounds(2, 256, 8)["size"]
    return [
        Finding(
            statement="Algorithm 10",
            claim="pbs-key-values, side by side and as a circuit, against the recursion; last of equal keys",
            bound="exact",
            measured=f"{wrong} wrong",
            instances=n_instances,
            verdict=FAILS if wrong else HOLDS,
        ),
        Finding(
            statement="Proposition H.33",
            claim="pbs-key-values by merge and scan, size, depth, width over the bound",
            bound="O(n d (log m + log n)), O(log n (log m + log n log d)), O(n d)",
            measured=f"{spread(rows)}; n = m = 4 to 128, d = 4, 16",
            instances=0,
            verdict=HOLDS,
        ),
        Finding(
            statement="Proposition H.33",
            claim="size where queries are few: n = 2, m = 256, d = 8",
            bound="O(n d (log m + log n))",
            measured=f"{bound:,.0f} times a constant cannot be for all m: {few.n:,} variables must be read. "
            f"With n + m for n, {few.size / (bound * 258 / 2):.1f} times the bound",
            instances=0,
            verdict=ERRATUM,
        ),
    ]


def recursive_pbs(queries, keys):
    """Algorithm 10 read literally: lists in, list out."""
    C, m = [None] * len(queries), len(keys)

    def search_range(s, t, x, y):
        if s >= t:
            return
        middle, low, high = (s + t) // 2, x, y
        while low < high:  # binary search: low becomes the number of keys of the range up to the query
            probe = (low + high) // 2
            if keys[probe] <= queries[middle]:
                low = probe + 1
            else:
                high = probe
        C[middle] = low - 1 if low > x and keys[low - 1] == queries[middle] else m
        search_range(s, middle, x, low)
        search_range(middle + 1, t, x if low == x else low - 1, y)

    search_range(0, len(queries), 0, m)
    return C
