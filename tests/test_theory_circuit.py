"""Arithmetic circuits: evaluation and measures equal the gate-by-gate reading; comparators of numbers."""

import doctest
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from theory_circuit_oracles import oracle_evaluate, oracle_measure

from recallgap.errors import ConfigError
from recallgap.theory import circuit as circuit_module
from recallgap.theory.circuit import Builder
from recallgap.theory.comparators import check_comparators, comparator_circuit, from_bits, to_bits
from recallgap.theory.finding import FAILS


@st.composite
def circuits(draw):
    """A random circuit; some of its gates are needed by no output."""
    builder = Builder()
    wires = [builder.inputs(draw(st.integers(1, 4)))]
    wires.append(builder.constants(np.array(draw(st.lists(st.integers(-3, 3), max_size=3)), dtype=int)))
    for _ in range(draw(st.integers(0, 6))):
        every = np.concatenate([np.ravel(w) for w in wires])
        pick = st.lists(st.sampled_from(every.tolist()), min_size=2, max_size=2)
        operation = draw(st.sampled_from([builder.add, builder.multiply, builder.subtract]))
        wires.append(operation(draw(pick), draw(pick)))
    every = np.concatenate([np.ravel(w) for w in wires]).tolist()
    return builder.build([draw(st.lists(st.sampled_from(every), min_size=1, max_size=4))])


@given(circuits(), st.integers(0, 2**32 - 1))
def test_evaluation_and_measures_equal_the_reading_gate_by_gate(circuit, seed):
    inputs_Bn = np.random.default_rng(seed).integers(-2, 3, (3, circuit.n_inputs))
    expected = [oracle_evaluate(circuit, inputs) for inputs in inputs_Bn.tolist()]
    assert circuit.evaluate(inputs_Bn.astype(object)).tolist() == expected
    measure = circuit.measure()
    assert (measure.n, measure.size, measure.depth, measure.width) == oracle_measure(circuit)


def test_the_example_of_the_module_runs():
    assert doctest.testmod(circuit_module).failed == 0


def test_gates_that_no_output_needs_are_dropped():
    builder = Builder()
    a, b = builder.inputs(2)
    builder.multiply(builder.add(a, b), a)
    circuit = builder.build([builder.add(b, b)])
    assert circuit.measure().size == 1
    assert circuit.evaluate(np.array([[1, 5]])).tolist() == [[10]]


def test_a_value_carried_past_levels_counts_at_each():
    """x is read again four levels down: two wires below the levels 1 to 3, of one gate each."""
    builder = Builder()
    x = builder.inputs(1)
    y = x
    for _ in range(4):
        y = builder.multiply(y, y)
    assert builder.build([builder.add(y, x)]).alive().tolist() == [1, 2, 2, 2, 2, 1]


def test_rationals_and_large_integers_are_exact():
    builder = Builder()
    x = builder.inputs(1)
    circuit = builder.build([builder.multiply(builder.constant(Fraction(1, 3)), builder.multiply(x, x))])
    inputs_Bn = np.array([[Fraction(1, 2)], [3 * 10**30]], dtype=object)
    assert circuit.evaluate(inputs_Bn).tolist() == [[Fraction(1, 12)], [3 * 10**60]]


@pytest.mark.parametrize("length", range(1, 10))
def test_a_sum_is_a_balanced_tree(length):
    builder = Builder()
    circuit = builder.build([builder.sum(builder.inputs(length))])
    assert circuit.evaluate(np.arange(length)[None]).tolist() == [[length * (length - 1) // 2]]
    measure = circuit.measure()
    assert (measure.size, measure.depth) == (length - 1, (length - 1).bit_length())


def test_inputs_of_another_number_are_refused():
    builder = Builder()
    circuit = builder.build([builder.inputs(3)])
    with pytest.raises(
        ConfigError, match=r"3 variables: got inputs of shape \(1, 2\), expected \(batch, 3\)"
    ):
        circuit.evaluate(np.zeros((1, 2)))


@pytest.mark.parametrize("d", [1, 2, 3, 4])
def test_comparators_are_right_for_all_pairs(d):
    a, b = (x.ravel() for x in np.meshgrid(np.arange(2**d), np.arange(2**d)))
    outputs = comparator_circuit(d).evaluate(np.concatenate([to_bits(a, d), to_bits(b, d)], axis=1))
    assert (outputs == np.stack([a < b, a == b], axis=1)).all()


@pytest.mark.parametrize("d", [1, 2, 3, 5, 16, 33])
def test_a_comparator_has_the_size_and_depth_that_its_text_says(d):
    measure = comparator_circuit(d).measure()
    assert measure.size == 11 * d - 3
    assert measure.depth <= 4 + 2 * (d - 1).bit_length() <= measure.depth + 1


@given(st.integers(1, 20).flatmap(lambda d: st.tuples(st.just(d), st.lists(st.integers(0, 2**d - 1)))))
def test_bits_and_back(d_and_tokens):
    d, tokens = d_and_tokens
    bits = to_bits(np.array(tokens, dtype=np.int64), d)
    assert from_bits(bits).tolist() == tokens
    assert ["".join(map(str, row)) for row in bits] == [f"{token:0{d}b}" for token in tokens]


def test_tokens_that_need_more_bits_are_refused_with_the_smallest_that_works():
    with pytest.raises(ConfigError, match="in 3 bits: found 2 to 9, expected 0 to 7; use d = 4"):
        to_bits([2, 9], 3)
    with pytest.raises(ConfigError, match=r"found -1 to 2, .* tokens are not negative"):
        to_bits([-1, 2], 3)
    with pytest.raises(ConfigError, match="0 bits: the smallest that works is 1"):
        comparator_circuit(0)


def test_the_check_of_comparators_holds():
    assert all(finding.verdict != FAILS for finding in check_comparators(np.random.default_rng(0), 1000))
