"""Measured size, depth and width of the circuits of propositions H.33 and H.36, over their bounds (a table).

Every circuit is really built and measured, up to N = 3072 tokens of 16 bits (29 million gates, 1.3 GB).
"""

from dataclasses import asdict
from math import log2

from recallgap.theory.bounds import h33_bounds, h36_bounds, ratios
from recallgap.theory.mqar_circuit import block_pairs, mqar_circuit
from recallgap.theory.parallel_mqar import n_levels
from recallgap.theory.pbs import pbs_circuit
from recallgap.theory.sorting import merge_network, sorting_network

TRIPLES = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
BITS = (4, 8, 16)


def complexity_table(triples=TRIPLES, bits=BITS):
    """One row a circuit: {statement, N, n, d, size, depth, width, size_ratio, depth_ratio, width_ratio}.

    H.33 is measured with n queries in n keys. Rows of H.36 have Batcher's price too, in comparators:
    sort_once, of one list of n, over n log2 n (lemma H.35); sort_shared, of the keys and queries of all
    levels as built, and sort_from_scratch, if every level sorted its own, both over n (log2 n)^2.
    """
    rows = []
    for d in bits:
        for n in triples:
            of_pbs, of_mqar = pbs_circuit(n, n, d).measure(), mqar_circuit(3 * n, d).measure()
            rows.append(_row("H.33", n, d, of_pbs, h33_bounds(n, n, d)))
            rows.append(_row("H.36", n, d, of_mqar, h36_bounds(3 * n, d)) | _batcher(n))
    return rows


def _row(statement, n, d, measure, bounds):
    found = {f"{quantity}_ratio": ratio for quantity, ratio in ratios(measure, bounds).items()}
    sizes = {name: value for name, value in asdict(measure).items() if name != "n"}
    return {"statement": statement, "N": 3 * n, "n": n, "d": d, **sizes, **found}


def _batcher(n):
    shared, scratch = 0, 0
    for k in range(n_levels(n)):
        for places in block_pairs(n, k):
            pairs, left, right = len(places), 1 << k, places.shape[1] - (1 << k)
            scratch += pairs * (sorting_network(left).n_comparators + sorting_network(right).n_comparators)
            if k < n_levels(n) - 1:
                shared += 2 * pairs * merge_network(left, right).n_comparators
    unit = n * log2(n)
    return {
        "sort_once": sorting_network(n).n_comparators / unit,
        "sort_shared": shared / (unit * log2(n)),
        "sort_from_scratch": scratch / (unit * log2(n)),
    }
