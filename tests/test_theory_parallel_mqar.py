"""Parallel-MQAR (algorithm 11) equals the literal scan, in numpy and as a circuit; the bounds of H.36."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from theory_oracles import oracle_answers

from recallgap.errors import ConfigError
from recallgap.theory.bounds import h36_bounds, ratios
from recallgap.theory.complexity import complexity_table
from recallgap.theory.figures import complexity_figure
from recallgap.theory.finding import FAILS
from recallgap.theory.mqar import KINDS, NO_ANSWER, answers, random_triples
from recallgap.theory.mqar_circuit import block_pairs, check_mqar_circuit, mqar_circuit, solve
from recallgap.theory.parallel_mqar import check_parallel_mqar, n_levels, parallel_mqar
from recallgap.theory.sorting import merge_network, sorting_network

triples = st.integers(1, 17).flatmap(
    lambda n: st.lists(st.tuples(*[st.integers(0, 3)] * 3), min_size=n, max_size=n)
)  # four tokens: keys repeat, within blocks and across levels


def expected_answers(keys, values, queries):
    return [NO_ANSWER if v is None else v for v in oracle_answers(keys, values, queries)]


@given(st.lists(triples, min_size=1, max_size=3))
def test_the_algorithm_equals_the_scan(sequences):
    n = min(map(len, sequences))
    keys_Bn, values_Bn, queries_Bn = np.moveaxis(np.array([s[:n] for s in sequences]), -1, 0)
    expected = [expected_answers(*x) for x in zip(keys_Bn, values_Bn, queries_Bn, strict=True)]
    assert parallel_mqar(keys_Bn, values_Bn, queries_Bn).tolist() == expected


CIRCUITS = {n: mqar_circuit(3 * n, 2) for n in range(1, 18)}


@given(triples)
def test_the_circuit_equals_the_scan(sequence):
    keys, values, queries = np.array(sequence).T
    found = solve(CIRCUITS[len(sequence)], keys[None], values[None], queries[None], 2)
    assert found.tolist() == [expected_answers(keys, values, queries)]


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 12, 16, 23, 32, 47, 64])
def test_the_circuit_equals_the_scan_on_all_kinds(n):
    d = max(3, (2 * n - 1).bit_length())
    circuit = mqar_circuit(3 * n, d)
    for kind in KINDS:
        x = random_triples(np.random.default_rng(n), 24, n, d, kind)
        assert (solve(circuit, *x, d) == answers(*x)).all()


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 8, 12, 33])
def test_each_pair_meets_at_exactly_one_level(n):
    met = []
    for k in range(n_levels(n)):
        for places in block_pairs(n, k):
            met += [(j, i) for row in places.tolist() for j in row[: 1 << k] for i in row[1 << k :]]
    assert sorted(met) == [(j, i) for j in range(n) for i in range(j + 1, n)]


def test_a_batch_may_be_empty():
    assert parallel_mqar(*np.zeros((3, 0, 5), dtype=int)).shape == (0, 5)


def test_tokens_that_leave_no_room_for_the_place_are_refused():
    wide = np.full((2, 4), 2**61)
    with pytest.raises(
        ConfigError, match=r"2 sequences of 4 triples: found tokens of 62 bits, .* 0 to 2\^60"
    ):
        parallel_mqar(wide, wide, wide)
    with pytest.raises(ConfigError, match="found a token -1"):
        parallel_mqar(-np.ones((1, 3), dtype=int), np.ones((1, 3), dtype=int), np.ones((1, 3), dtype=int))
    just_room = np.array([[0, 2**60 - 1, 5, 1], [2**60 - 1, 2**60 - 1, 3, 2]])
    expected = answers(just_room, just_room, just_room[:, ::-1])
    assert (parallel_mqar(just_room, just_room, just_room[:, ::-1]) == expected).all()


@pytest.mark.parametrize(("N", "works"), [(0, 3), (1, 3), (10, 12), (3073, 3075)])
def test_bad_sizes_are_refused_with_the_smallest_that_works(N, works):
    with pytest.raises(ConfigError, match=f"N = {N} tokens: .* the next that works is {works}$"):
        mqar_circuit(N, 4)


def test_bad_widths_are_refused_with_the_smallest_that_works():
    with pytest.raises(ConfigError, match="tokens of 0 bits: the smallest that works is 1"):
        mqar_circuit(12, 0)
    with pytest.raises(ConfigError, match="in 2 bits: found 0 to 5, expected 0 to 3; use d = 3"):
        solve(CIRCUITS[2], np.array([[5, 1]]), np.array([[0, 1]]), np.array([[1, 1]]), 2)


def test_h36_holds_with_a_constant():
    """The size ratio still rises at these N, ever less; its limit is about 7 (docs/theory.md)."""
    found = [ratios(mqar_circuit(3 * n, 8).measure(), h36_bounds(3 * n, 8)) for n in (4, 8, 16, 32, 64, 128)]
    for a, b, c in zip(found, found[1:], found[2:], strict=False):
        assert c["size"] - b["size"] < b["size"] - a["size"]
        assert c["depth"] - b["depth"] < b["depth"] - a["depth"]
    assert max(r["size"] for r in found) < 5
    assert max(r["depth"] for r in found) < 3
    assert max(r["width"] for r in found) < 1.2


def test_the_table_has_a_row_a_circuit_and_shared_merges_save_a_logarithm():
    rows = complexity_table((4, 5, 64, 128), (2, 4))
    assert [(r["statement"], r["N"], r["d"]) for r in rows[:2]] == [("H.33", 12, 2), ("H.36", 12, 2)]
    assert len(rows) == 2 * 4 * 2
    small, large = (next(r for r in rows if r["statement"] == "H.36" and r["n"] == n) for n in (64, 128))
    assert large["sort_shared"] / small["sort_shared"] < 1.05
    assert large["sort_from_scratch"] / small["sort_from_scratch"] > 1.15
    unit, sorts = 64 * 6**2, {k: sorting_network(2**k).n_comparators for k in range(7)}
    up = 2 * (sorts[6] - merge_network(32, 32).n_comparators)  # the last merge serves no search
    assert small["sort_shared"] * unit == pytest.approx(up)
    assert small["sort_from_scratch"] * unit == pytest.approx(sum(sorts[k] * 64 >> k for k in range(6)))
    figure = complexity_figure(rows)
    assert [len(axes.lines) for axes in figure.axes] == [2, 2, 2, 1, 2, 2, 2, 2]


@pytest.mark.parametrize("check", [check_parallel_mqar, check_mqar_circuit])
def test_the_checks_hold(check):
    findings = check(np.random.default_rng(0), 60)
    assert all(finding.verdict != FAILS for finding in findings)
    assert findings[0].instances >= 60
