"""Attention solves MQAR: two layers against the literal scan; the mask, repeated keys, parameters."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from theory_oracles import oracle_answers

from recallgap.errors import ConfigError
from recallgap.theory.attention import (
    SEVERAL,
    check_attention,
    encode,
    mask,
    n_params,
    outputs,
    read,
    weights,
)
from recallgap.theory.finding import ERRATUM
from recallgap.theory.mqar import NO_ANSWER, random_triples

TRIPLES = st.lists(st.tuples(*3 * [st.integers(0, 3)]), min_size=1, max_size=9)


def answer(triples, c, kind):
    arrays = [np.array([x]) for x in zip(*triples, strict=True)]
    return read(outputs(*arrays, c, kind=kind), kind=kind)[0].tolist()


def expected(triples):
    found = oracle_answers(*map(list, zip(*triples, strict=True)))
    return [NO_ANSWER if x is None else x for x in found]


@given(TRIPLES)
def test_with_the_recency_factor_any_keys_are_answered(triples):
    assert answer(triples, 4, "recency") == expected(triples)


@given(TRIPLES)
def test_with_the_strict_mask_several_values_are_summed(triples):
    keys, values, queries = zip(*triples, strict=True)
    for i, found in enumerate(answer(triples, 4, "strict")):
        matched = {values[j] for j in range(i) if keys[j] == queries[i]}
        assert found == (SEVERAL if len(matched) > 1 else matched.pop() if matched else NO_ANSWER)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 20])
@pytest.mark.parametrize("kind", ["unique", "no match"])
def test_with_the_strict_mask_unique_keys_are_answered(n, kind):
    arrays = random_triples(np.random.default_rng(n), 20, n, 6, kind)
    found = read(outputs(*arrays, 64)).tolist()
    assert found == [expected(zip(*(x[b] for x in arrays), strict=True)) for b in range(20)]


def test_the_outputs_are_one_hot_where_keys_are_unique():
    arrays = random_triples(np.random.default_rng(0), 20, 8, 4, "unique")
    y_Bnc = outputs(*arrays, 16)
    assert set(np.unique(y_Bnc)) <= {0.0, 1.0}
    assert y_Bnc.sum(axis=2).max() == 1


def test_the_printed_layer_reads_present_and_later_pairs():
    triples = [(0, 5, 1), (1, 6, 1), (2, 7, 3), (3, 4, 0)]
    assert answer(triples, 8, "strict") == expected(triples) == [-1, -1, -1, 5]
    assert answer(triples, 8, "printed") == [6, 6, 4, 5], "from a later pair, the present, a later one"


def test_the_recency_factor_lets_the_latest_win_over_all_before():
    triples = [(0, 1, 3)] * 30 + [(0, 2, 3), (3, 3, 0)]
    assert answer(triples, 4, "recency")[-1] == 2
    assert answer(triples, 4, "strict")[-1] == SEVERAL


def test_masks():
    assert mask(2, "strict").tolist() == 3 * [6 * [0]] + 3 * [3 * [1] + 3 * [0]]
    recency = mask(3, "recency")
    assert recency[6].tolist() == 3 * [pytest.approx(1 / 3)] + 3 * [1] + 3 * [0]
    assert mask(2, "printed").all()


def test_a_row_of_the_input_is_a_tagged_token_and_a_position():
    u_BND = encode(*(np.array([[x]]) for x in (0, 1, 1)), 2)
    assert u_BND[0].tolist() == [
        [1, 0, 0, 0, 0, 0, 1, 0, 0],
        [0, 0, 0, 1, 0, 0, 0, 1, 0],
        [0, 0, 0, 0, 0, 1, 0, 0, 1],
    ]


@pytest.mark.parametrize("c", [1, 4, 16, 50])
def test_parameters_are_of_the_order_of_c_squared_at_most(c):
    """The longest input of unique keys has N = 3 c rows, so D = 6 c columns: 18 + 18 + 36 + 3 x 6."""
    assert n_params(weights(c, c)) == 90 * c**2


def test_tokens_beyond_c_are_refused():
    with pytest.raises(ConfigError, match="smallest c that works is 8"):
        encode(*(np.array([[x]]) for x in (0, 7, 1)), 4)


def test_the_check_holds():
    findings = check_attention(np.random.default_rng(1), 20)
    assert [finding.verdict for finding in findings] == [ERRATUM, ERRATUM]
