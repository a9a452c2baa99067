"""Compiled programs have their circuits' outputs; MQAR compiled solves MQAR."""

from fractions import Fraction
from functools import cache
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from theory_oracles import oracle_answers
from theory_program_oracles import SEEDS, oracle_circuit, oracle_program

from recallgap.errors import ConfigError
from recallgap.theory.base_conv import Program, random_layer
from recallgap.theory.circuit import Builder
from recallgap.theory.comparators import comparator_circuit
from recallgap.theory.compiler import (
    AsCircuit,
    check_compiler,
    compile_circuit,
    count_layers,
    levels_of,
    random_circuit,
)
from recallgap.theory.finding import ERRATUM, HOLDS
from recallgap.theory.mqar import KINDS, NO_ANSWER, random_triples
from recallgap.theory.mqar_circuit import mqar_circuit, solve
from recallgap.theory.sorting import sorting_circuit


@given(SEEDS, st.integers(1, 5), st.integers(1, 9), st.integers(0, 5))
def test_a_program_has_its_circuits_outputs(seed, n, width, depth):
    """Exactly, however large the numbers; and in as many layers as were counted beforehand."""
    rng = np.random.default_rng(seed)
    circuit = random_circuit(rng, n, width, depth)
    inputs_Bn = rng.integers(-9, 10, (3, n)).astype(object)
    program = compile_circuit(circuit)
    expected = [oracle_circuit(circuit, inputs) for inputs in inputs_Bn.tolist()]
    assert AsCircuit(program).evaluate(inputs_Bn).tolist() == expected
    assert program.n_layers == count_layers(circuit)
    assert program.workspace[1] == 3


def test_the_program_is_one_of_definition_4_1():
    """Its layers read literally, number by number, give the circuit's outputs too."""
    builder = Builder()
    x, y, z = builder.inputs(3)
    sum_of_two = builder.add(x, y)
    circuit = builder.build([builder.multiply(sum_of_two, builder.subtract(z, sum_of_two))])
    program = compile_circuit(circuit)
    u = [[5], [-2], [4]]
    assert oracle_program(program.layers, u, program.shape, program.shape_out) == [[3 * (4 - 3)]]


def test_outputs_may_be_inputs_constants_and_repeated():
    builder = Builder()
    x, y = builder.inputs(2)
    seven = builder.constant(7)
    product_of_all = builder.multiply(builder.multiply(x, y), seven)
    for outputs in ([x], [seven], [y, y, seven, x], [product_of_all, seven, x, product_of_all, y]):
        circuit = builder.build([np.array(outputs)])
        found = AsCircuit(compile_circuit(circuit)).evaluate([[2, 3]])
        assert found.tolist() == [oracle_circuit(circuit, [2, 3])]


def test_constants_may_be_fractions():
    builder = Builder()
    x = builder.inputs()
    circuit = builder.build([builder.multiply(x, builder.constant(Fraction(1, 3)))])
    found = AsCircuit(compile_circuit(circuit)).evaluate(np.array([[5]], object))
    assert found.tolist() == [[Fraction(5, 3)]]


def test_a_wire_waits_as_long_as_it_is_needed_and_constants_never():
    builder = Builder()
    x, y = builder.inputs(2)
    deep = builder.add(x, builder.constant(1))
    for _ in range(3):
        deep = builder.multiply(deep, deep)
    circuit = builder.build([builder.add(builder.add(deep, y), builder.constant(1))])
    assert [len(level.wires_R) for level in levels_of(circuit)] == [2, 2, 2, 2, 1, 1]
    assert AsCircuit(compile_circuit(circuit)).evaluate([[1, 5]]).tolist() == [[2**8 + 5 + 1]]


@pytest.mark.parametrize("circuit", [comparator_circuit(1), comparator_circuit(4), sorting_circuit(5, 2)])
def test_comparators_and_sorting_networks(circuit):
    bits_Bn = np.random.default_rng(0).integers(0, 2, (50, circuit.n_inputs)).astype(np.int8)
    found_BO = AsCircuit(compile_circuit(circuit)).evaluate(bits_Bn)
    np.testing.assert_array_equal(found_BO, circuit.evaluate(bits_Bn))


@pytest.mark.parametrize(("N", "d"), [(3, 1), (6, 1), (9, 1), (6, 2)])
def test_a_base_conv_solves_every_instance_of_mqar(N, d):
    """Theorem H.37, all inputs of 2 and 3 triples: 4,096 for two triples of 2 bits."""
    program = AsCircuit(compile_circuit(mqar_circuit(N, d)))
    tokens_Bn3 = np.array(list(product(range(2**d), repeat=N)), np.int8).reshape(-1, N // 3, 3)
    found_Bn = solve(program, *np.moveaxis(tokens_Bn3, 2, 0), d)
    for tokens_n3, found in zip(tokens_Bn3.tolist(), found_Bn.tolist(), strict=True):
        expected = oracle_answers(*zip(*tokens_n3, strict=True))
        assert found == [NO_ANSWER if x is None else x for x in expected]


@settings(max_examples=10)
@given(SEEDS, st.sampled_from(KINDS))
def test_a_base_conv_solves_mqar_of_four_triples(seed, kind):
    triples = random_triples(np.random.default_rng(seed), 8, 4, 3, kind)
    found_Bn = solve(four_triples(), *(x_Bn.astype(np.int8) for x_Bn in triples), 3)
    for found, *tokens in zip(found_Bn.tolist(), *(x_Bn.tolist() for x_Bn in triples), strict=True):
        assert found == [NO_ANSWER if x is None else x for x in oracle_answers(*tokens)]


@cache
def four_triples():
    return AsCircuit(compile_circuit(mqar_circuit(12, 3)))


def test_notation_of_a_base_conv_for_mqar():
    """(N d, O~(1), O~(1), O~(N d), O~(1)): 36 bits in one column, 512 rows and 3 columns to work in."""
    N, n_layers, *rest = four_triples().program.notation
    assert (N, rest) == (36, [1, 512, 3])
    assert n_layers == count_layers(mqar_circuit(12, 3))


@pytest.mark.parametrize("width", [4, 16, 64, 256])
def test_layers_grow_as_depth_times_log_width(width):
    """2^m < 4 w rows and 10 m - 4 layers a level: at most 10 log2 w + 16 a level, and one."""
    circuit = random_circuit(np.random.default_rng(width), width, width, 6)
    measure = circuit.measure()
    assert count_layers(circuit) <= measure.depth * (10 * np.log2(measure.width) + 16) + 1


@given(SEEDS, st.integers(2, 7), st.data())
def test_no_causal_program_reads_below(seed, N, data):
    """Hence none has the output x_1 in row 0; the compiled one, cyclic, has."""
    rng = np.random.default_rng(seed)
    row = data.draw(st.integers(0, N - 2))
    program = Program((N, 2), tuple(random_layer(rng, N, 2, cyclic=False) for _ in range(3)), (N, 2))
    u_2ND = rng.integers(-9, 10, (1, N, 2)).repeat(2, axis=0)
    u_2ND[1, row + 1 :] += 1
    before, after = program(u_2ND)[:, : row + 1]
    np.testing.assert_array_equal(before, after)


def test_the_cyclic_program_reads_below():
    builder = Builder()
    circuit = builder.build([builder.inputs(2)[::-1]])
    assert AsCircuit(compile_circuit(circuit)).evaluate([[3, 4]]).tolist() == [[4, 3]]


def test_circuits_without_inputs_or_outputs_are_refused():
    builder = Builder()
    with pytest.raises(ConfigError, match="0 inputs and 1 outputs"):
        compile_circuit(builder.build([builder.constant(1)]))


def test_checks_hold():
    verdicts = [f.verdict for f in check_compiler(np.random.default_rng(0), 20)]
    assert verdicts == [HOLDS, ERRATUM, HOLDS]
