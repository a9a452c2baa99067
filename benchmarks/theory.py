"""Speed of the theory's Parallel-MQAR (`recallgap.theory.parallel_mqar`), against two peers.

Peers, checked to give the same answers: the scan with a dictionary, over Python lists, and one sort of all
keys and queries by (sequence, token, time), numpy's argsort, in which each query looks at the last key before
it. The circuit (`theory.mqar_circuit`) is evaluated, too, where it fits. Times are processor time, the best
of several runs.

    python benchmarks/theory.py [--sequences 64] [--bits 16]
"""

import argparse
import time

import numpy as np

from recallgap.theory.mqar import NO_ANSWER, answers, random_triples
from recallgap.theory.mqar_circuit import mqar_circuit, solve
from recallgap.theory.parallel_mqar import parallel_mqar

TRIPLES = (16, 64, 256, 1024, 4096)
MAX_CIRCUIT_TRIPLES = 64
REPEATS = 9


def by_scan(keys_Bn, values_Bn, queries_Bn):
    """`theory.mqar.answers` over lists, the fastest that plain Python does."""
    found = []
    for triples in zip(keys_Bn.tolist(), values_Bn.tolist(), queries_Bn.tolist(), strict=True):
        latest, row = {}, []
        for key, value, query in zip(*triples, strict=True):
            row.append(latest.get(query, NO_ANSWER))
            latest[key] = value
        found.append(row)
    return np.array(found)


def by_argsort(keys_Bn, values_Bn, queries_Bn):
    """One sort: at equal tokens earlier goes first, and the query of a triple before its key."""
    B, n = keys_Bn.shape
    tokens = np.stack([queries_Bn, keys_Bn], axis=-1).reshape(B, 2 * n)
    rows = np.arange(B)[:, None] << 32
    order = np.argsort((rows | tokens).ravel(), kind="stable")
    is_key = order % 2 == 1
    last_key = np.maximum.accumulate(np.where(is_key, np.arange(len(order)), -1))
    code = (rows | tokens).ravel()[order]
    found = ~is_key & (last_key >= 0)
    found[found] = code[last_key[found]] == code[found]
    answers_Bn = np.full(B * n, NO_ANSWER)
    answers_Bn[order[found] // 2] = values_Bn.ravel()[order[last_key[found]] // 2]
    return answers_Bn.reshape(B, n)


def seconds(function, *arguments):
    """The best of several runs, in seconds of processor time, and the result."""
    best = np.inf
    for _ in range(REPEATS):
        started = time.process_time()
        result = function(*arguments)
        best = min(best, time.process_time() - started)
    return best, result


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sequences", type=int, default=64)
    parser.add_argument("--bits", type=int, default=16)
    args = parser.parse_args()
    B, d = args.sequences, args.bits
    print(f"{B} sequences, tokens of {d} bits, repeated keys; million triples a processor second")
    print(f"{'n':>6} {'scan':>8} {'parallel':>9} {'argsort':>8} {'circuit':>8}   parallel / scan, / argsort")
    for n in TRIPLES:
        triples = random_triples(np.random.default_rng(n), B, n, d, "repeated")
        expected = answers(*triples)
        scan_s, by_dictionary = seconds(by_scan, *triples)
        parallel_s, by_levels = seconds(parallel_mqar, *triples)
        argsort_s, by_sort = seconds(by_argsort, *triples)
        assert (by_dictionary == expected).all()
        assert (by_levels == expected).all()
        assert (by_sort == expected).all()
        circuit = "-"
        if n <= MAX_CIRCUIT_TRIPLES:
            circuit_s, by_gates = seconds(solve, mqar_circuit(3 * n, d), *triples, d)
            assert (by_gates == expected).all()
            circuit = f"{B * n / circuit_s / 1e6:.4f}"
        speeds = [f"{B * n / s / 1e6:.2f}" for s in (scan_s, parallel_s, argsort_s)]
        compared = f"{scan_s / parallel_s:.2f}, {argsort_s / parallel_s:.2f}"
        print(f"{n:>6} {speeds[0]:>8} {speeds[1]:>9} {speeds[2]:>8} {circuit:>8}   {compared}")


if __name__ == "__main__":
    main()
