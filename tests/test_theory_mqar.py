"""The literal algorithm of MQAR and its random instances."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from theory_oracles import oracle_answers

from recallgap.errors import ConfigError
from recallgap.theory.mqar import KINDS, NO_ANSWER, answers, random_triples

TRIPLES = st.lists(st.tuples(*3 * [st.integers(0, 3)]), min_size=1, max_size=12)


@given(TRIPLES)
def test_answers_are_those_of_the_definition(triples):
    keys, values, queries = map(list, zip(*triples, strict=True))
    found = answers(*(np.array([x]) for x in (keys, values, queries)))[0].tolist()
    assert found == [NO_ANSWER if x is None else x for x in oracle_answers(keys, values, queries)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [1, 2, 5, 8, 33])
def test_instances_are_of_their_kind(kind, n):
    keys, values, queries = random_triples(np.random.default_rng(n), 50, n, 8, kind)
    for x in (keys, values, queries):
        assert x.shape == (50, n)
        assert x.min() >= 0
        assert x.max() < 256
    has_answer = answers(keys, values, queries)[:, 1:] != NO_ANSWER
    if kind in ("unique", "no match"):
        assert all(len(set(row)) == n for row in keys.tolist())
    if kind == "no match":
        assert not has_answer.any()
    elif kind == "all match":
        assert has_answer.all()
    elif n == 33:
        assert 0.2 < has_answer.mean() < 0.95


def test_too_few_bits_are_refused():
    with pytest.raises(ConfigError, match="they need at least 4"):
        random_triples(np.random.default_rng(0), 1, 8, 3, "unique")
