"""The space bound: the reduction from INDEX, bit machines that are what they claim, accuracies and bounds."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from theory_oracles import oracle_answers

from recallgap.errors import ConfigError
from recallgap.theory.finding import ERRATUM, HOLDS
from recallgap.theory.space import (
    EXACT_BITS,
    LinearState,
    OneNumber,
    Store,
    accuracy,
    best_accuracy,
    bits_needed,
    check_space,
    index_to_mqar,
    message,
    space_table,
)


@given(st.lists(st.integers(0, 1), min_size=1, max_size=12), st.data())
def test_the_answer_of_the_last_triple_is_the_bit(bits, data):
    n, place = len(bits), data.draw(st.integers(0, len(bits) - 1))
    arrays = index_to_mqar(np.array([bits]), np.array([place]))
    answers = oracle_answers(*(x[0].tolist() for x in arrays))
    assert answers[:-1] == n * [None], "only the last query has an answer"
    assert answers[-1] - n == bits[place]


def test_alices_part_does_not_depend_on_the_place():
    bits_Bn = np.random.default_rng(0).integers(0, 2, (1, 9))
    parts = [[x[0, :-1].tolist() for x in index_to_mqar(bits_Bn, np.array([place]))] for place in range(9)]
    assert all(part == parts[0] for part in parts)


def all_words(n):
    return index_to_mqar(np.array(list(product((0, 1), repeat=n))), np.zeros(2**n, int))


@pytest.mark.parametrize("n", [1, 3, 8])
def test_a_model_that_is_never_wrong_has_a_state_for_every_word(n):
    for model in (Store(n, n), OneNumber(n)):
        assert len(np.unique(message(model, *all_words(n)).reshape(2**n, -1), axis=0)) == 2**n


@pytest.mark.parametrize(("m", "p"), [(1, 1), (2, 3), (3, 1), (5, 2)])
def test_a_linear_state_has_no_more_states_than_its_bits_allow(m, p):
    model = LinearState.random(np.random.default_rng(0), 10, m, p)
    state = message(model, *all_words(10))
    assert model.bits == m * p
    assert state.min() >= -(2 ** (p - 1))
    assert state.max() <= 2 ** (p - 1) - 1
    assert len(np.unique(state, axis=0)) <= 2**model.bits


def test_a_linear_state_is_attention_without_softmax_while_nothing_overflows():
    rng = np.random.default_rng(1)
    model = LinearState.random(rng, 7, 5, 8)
    bits_Bn = rng.integers(0, 2, (20, 7))
    state = message(model, *index_to_mqar(bits_Bn, np.zeros(20, int)))
    assert (state == (2 * bits_Bn - 1) @ model.phi_nm).all()
    for place in range(7):
        scores = model.phi_nm @ model.phi_nm[place]
        said = (2 * bits_Bn - 1) @ scores + 0.5 * model.phi_nm[place].sum() > 0
        assert (model.read(state, np.full(20, place)) - 7 == said).all()


def test_what_is_stored_is_known_and_the_rest_is_guessed():
    for b in (0, 5, 16):
        found = accuracy(Store(16, b), np.random.default_rng(b), 20_000, 16)
        assert found == pytest.approx(0.5 + b / 32, abs=4 * 0.5 / math.sqrt(20_000))


def test_one_float64_holds_53_bits_and_no_more():
    ones = np.ones((1, EXACT_BITS + 1), int)
    last = np.array([EXACT_BITS])
    for n, right in ((EXACT_BITS, True), (EXACT_BITS + 1, False)):
        model = OneNumber(n)
        arrays = index_to_mqar(ones[:, :n], last * 0)
        state = message(model, *arrays)
        read = [int(model.read(state, np.array([place]))[0]) - n for place in range(n)]
        assert (read == n * [1]) == right


@given(st.floats(0, 1), st.integers(1, 64))
def test_the_bound_is_inverted(share, n):
    a = best_accuracy(share * n, n)
    assert 0.5 <= a <= 1
    assert bits_needed(a, n) == pytest.approx(share * n, abs=1e-6 * n)


def test_the_bound_at_its_ends_and_against_its_formula():
    assert (bits_needed(0.5, 10), bits_needed(1.0, 10)) == (0, 10)
    by_hand = (1 + 0.9 * math.log2(0.9) + 0.1 * math.log2(0.1)) * 10
    assert bits_needed(0.9, 10) == pytest.approx(by_hand)


def test_every_protocol_of_two_bits_is_below_the_bound():
    """All 16 messages of one bit about two: the best is right in 3 of 4 cases, and the bound allows 0.89."""
    words, best = list(product((0, 1), repeat=2)), 0
    for said in product((0, 1), repeat=4):
        right = 0
        for place in (0, 1):
            for bit in (0, 1):
                told = [word[place] for word, sent in zip(words, said, strict=True) if sent == bit]
                right += max(told.count(0), told.count(1))
        best = max(best, right / 8)
    assert best == 0.75
    assert best < best_accuracy(1, 2)


def test_measured_accuracies_are_below_the_bound_and_some_near():
    rows = space_table(np.random.default_rng(3), 4000)
    assert all(found <= bound + 4 * 0.5 / math.sqrt(4000) for _, _, found, bound in rows)
    assert [bits for _, bits, _, _ in rows] == sorted(bits for _, bits, _, _ in rows)
    assert any(found > 0.9 for name, _, found, _ in rows if name.startswith("linear"))


def test_refusals():
    with pytest.raises(ConfigError, match="storing 9 of 8 bits: choose from 0 to 8"):
        Store(8, 9)
    with pytest.raises(ConfigError, match="at least 1 of each"):
        LinearState.random(np.random.default_rng(0), 4, 0, 2)


def test_the_check_holds():
    findings = check_space(np.random.default_rng(4), 40)
    assert [finding.verdict for finding in findings] == [HOLDS, HOLDS, ERRATUM]
