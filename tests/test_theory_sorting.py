"""Batcher's networks of any length sort and merge; as circuits they carry along and send back."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from theory_circuit_oracles import is_sorted, oracle_run_network

from recallgap.errors import ConfigError
from recallgap.theory.circuit import Builder
from recallgap.theory.comparators import from_bits, to_bits
from recallgap.theory.finding import FAILS
from recallgap.theory.sorting import (
    check_sorting,
    merge_network,
    run_network,
    sorting_circuit,
    sorting_network,
    undo_network,
)


@pytest.mark.parametrize("n", range(1, 13))
def test_a_network_sorts_all_lists_of_zeros_and_ones(n):
    """Which is enough for all lists (the 0-1 principle)."""
    network = sorting_network(n)
    for number in range(2**n):
        assert is_sorted(oracle_run_network(network, [number >> i & 1 for i in range(n)]))


@pytest.mark.parametrize("m", range(9))
@pytest.mark.parametrize("n", range(9))
def test_a_merge_network_merges_all_sorted_lists_of_zeros_and_ones(m, n):
    network = merge_network(m, n)
    for i in range(m + 1):
        for j in range(n + 1):
            items = [0] * i + [1] * (m - i) + [0] * j + [1] * (n - j)
            assert is_sorted(oracle_run_network(network, items))


@pytest.mark.parametrize("n", [1, 2, 3, 6, 16, 31])
def test_the_comparators_of_a_layer_share_no_place(n):
    for low, high in sorting_network(n).layers:
        assert len({*low.tolist(), *high.tolist()}) == 2 * len(low)


@pytest.mark.parametrize("k", range(1, 11))
def test_powers_of_two_have_batchers_numbers(k):
    """(k^2 - k + 4) 2^(k-2) - 1 comparators in k (k + 1) / 2 layers; a merge (k - 1) 2^(k-1) + 1 in k."""
    network, merge = sorting_network(2**k), merge_network(2 ** (k - 1), 2 ** (k - 1))
    assert network.n_comparators == (k * k - k + 4) * 2**k // 4 - 1
    assert len(network.layers) == k * (k + 1) // 2
    assert (merge.n_comparators, len(merge.layers)) == ((k - 1) * 2 ** (k - 1) + 1, k)


@pytest.mark.parametrize("n", [3, 5, 9, 100, 1000])
def test_other_lengths_need_no_more_layers_than_the_next_power_of_two(n):
    k = math.ceil(math.log2(n))
    assert len(sorting_network(n).layers) <= k * (k + 1) // 2
    assert sorting_network(n).n_comparators <= sorting_network(2**k).n_comparators


@given(
    st.integers(1, 5).flatmap(lambda d: st.tuples(st.just(d), st.lists(st.integers(0, 2**d - 1), min_size=1)))
)
def test_the_circuit_sorts_and_says_where_each_came_from(d_and_tokens):
    d, tokens = d_and_tokens
    outputs = sorting_circuit(len(tokens), d).evaluate(to_bits(tokens, d).reshape(1, -1).astype(np.int64))
    outputs = outputs.reshape(len(tokens), d + 1)
    assert from_bits(outputs[:, :d]).tolist() == sorted(tokens)
    assert sorted(outputs[:, d].tolist()) == list(range(len(tokens)))
    assert [tokens[place] for place in outputs[:, d]] == sorted(tokens)


@given(st.lists(st.integers(0, 7), min_size=1, max_size=20))
def test_undoing_a_sort_gives_the_list_back(tokens):
    builder, n = Builder(), len(tokens)
    elements, flags = run_network(builder, sorting_network(n), builder.inputs(2, n, 3), 3)
    circuit = builder.build([undo_network(builder, sorting_network(n), elements, flags)])
    bits = to_bits([tokens, tokens[::-1]], 3).reshape(1, -1)  # two problems side by side
    assert (circuit.evaluate(bits) == bits).all()


def test_bad_sizes_are_refused():
    with pytest.raises(ConfigError, match="the smallest has 1 number of 1 bit"):
        sorting_circuit(0, 4)
    with pytest.raises(ConfigError, match="of 4 numbers of 0 bits"):
        sorting_circuit(4, 0)


def test_the_check_of_sorting_holds():
    assert all(finding.verdict != FAILS for finding in check_sorting(np.random.default_rng(0), 200))
