"""pbs-key-values (algorithm 10): the recursion, side by side and as a circuit; the bounds of H.33."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from theory_circuit_oracles import oracle_pbs

from recallgap.errors import ConfigError
from recallgap.theory.bounds import h33_bounds, ratios
from recallgap.theory.circuit import Builder
from recallgap.theory.comparators import to_bits
from recallgap.theory.finding import ERRATUM, FAILS
from recallgap.theory.pbs import (
    check_pbs,
    last_of_equals,
    pbs_circuit,
    pbs_key_values,
    recursive_pbs,
    search,
)

tokens = st.lists(st.integers(0, 7), min_size=1, max_size=12).map(sorted)


@given(tokens, tokens)
def test_recursion_and_side_by_side_find_the_last_equal_key(queries, keys):
    expected = oracle_pbs(queries, keys)
    assert recursive_pbs(queries, keys) == expected
    assert pbs_key_values(np.array(queries), np.array(keys)).tolist() == expected


@given(tokens, tokens)
def test_the_circuit_finds_the_last_equal_key(queries, keys):
    circuit = pbs_circuit(len(queries), len(keys), 3)
    inputs = np.concatenate([to_bits(queries, 3).ravel(), to_bits(keys, 3).ravel()])
    assert circuit.evaluate(inputs[None]).tolist() == [oracle_pbs(queries, keys)]


@given(tokens, tokens)
def test_the_search_says_whether_and_gives_zeros_without_a_match(queries, keys):
    """Also for a query below all keys, which meets no key in the merged list."""
    builder, n, m = Builder(), len(queries), len(keys)
    inputs = builder.inputs(n + m, 3)
    query_wires, key_wires = inputs[:n], inputs[n:]
    found = search(builder, query_wires, key_wires, last_of_equals(builder, key_wires), key_wires)
    outputs = builder.build([found]).evaluate(to_bits(queries + keys, 3).reshape(1, -1)).reshape(n, 4)
    assert outputs[:, 0].tolist() == [query in keys for query in queries]
    assert (outputs[:, 1:] == to_bits(queries, 3) * outputs[:, :1]).all()  # a key was its own payload


def test_no_key_or_no_query_is_no_match():
    some, none = np.array([1, 2]), np.array([], dtype=int)
    assert pbs_key_values(some, none).tolist() == recursive_pbs([1, 2], []) == [0, 0]
    assert pbs_key_values(none, some).tolist() == recursive_pbs([], [1, 2]) == []


@pytest.mark.parametrize("d", [4, 16])
def test_h33_holds_with_a_constant(d):
    """n = m: no ratio rises with n, but for the width, whose flags need log n <= d wires a query."""
    found = [ratios(pbs_circuit(n, n, d).measure(), h33_bounds(n, n, d)) for n in (4, 16, 64, 256)]
    for a, b in pairwise(found):
        assert b["size"] < a["size"] < 25
        assert b["depth"] < a["depth"] < 6
        assert a["width"] < 11


def test_bad_sizes_are_refused():
    with pytest.raises(ConfigError, match="of 0 queries, 4 keys and 2 bits: the smallest has 1, 1 and 1"):
        pbs_circuit(0, 4, 2)


def test_the_check_of_pbs_holds_and_names_the_erratum():
    verdicts = [finding.verdict for finding in check_pbs(np.random.default_rng(0), 200)]
    assert FAILS not in verdicts
    assert ERRATUM in verdicts
