"""Cross- and autocorrelation against their definition, the printed polynomial's rotation, Top."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from theory_kernel_oracles import oracle_correlation, oracle_equal_pairs, oracle_top

from recallgap.errors import ConfigError
from recallgap.theory.autocorrelation import (
    check_autocorrelation,
    cross_correlation,
    polynomial_correlation,
    printed_correlation,
    top_shifts,
)
from recallgap.theory.finding import ERRATUM, HOLDS

VECTORS = st.lists(st.tuples(*2 * [st.integers(-50, 50)]), min_size=1, max_size=24)


@given(VECTORS)
def test_integers_are_exact_in_both_forms(pairs):
    u, v = (np.array(x) for x in zip(*pairs, strict=True))
    expected = oracle_correlation(u.tolist(), v.tolist())
    assert cross_correlation(u, v).tolist() == expected
    assert polynomial_correlation(u, v).tolist() == expected
    assert cross_correlation(u, u).tolist() == oracle_correlation(u.tolist(), u.tolist())


@given(VECTORS)
def test_the_printed_polynomial_begins_at_shift_one(pairs):
    u, v = (np.array(x) for x in zip(*pairs, strict=True))
    expected = oracle_correlation(u.tolist(), v.tolist())
    assert printed_correlation(u, v).tolist() == expected[1:] + expected[:1]


def test_the_printed_polynomial_is_not_the_correlation():
    u = np.array([1, 0, 0])
    assert cross_correlation(u, u).tolist() == [1, 0, 0]
    assert printed_correlation(u, u).tolist() == [0, 0, 1]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_floats_agree_within_their_tolerance(dtype):
    rng = np.random.default_rng(0)
    for n in (1, 2, 3, 17, 64, 300):
        u, v = rng.standard_normal((2, n)).astype(dtype)
        scale = abs(u).sum() * abs(v).max()
        tolerance = scale * (1e-12 if dtype == np.float64 else 1e-5)
        np.testing.assert_allclose(
            cross_correlation(u, v), polynomial_correlation(u, v), rtol=0, atol=tolerance
        )


def test_one_hot_channels_count_equal_tokens():
    rng = np.random.default_rng(1)
    tokens = rng.integers(0, 4, 23)
    one_hot = (tokens == np.arange(4)[:, None]).astype(int)
    found = cross_correlation(one_hot, one_hot).sum(0).tolist()
    assert found == [oracle_equal_pairs(tokens.tolist(), lag) for lag in range(23)]


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=12), st.integers(1, 14))
def test_top_is_that_of_its_definition(w, t):
    assert top_shifts(np.array(w), t).tolist() == oracle_top(w, t)


def test_refusals():
    with pytest.raises(ConfigError, match="3 and 2 entries: both must have the same length"):
        cross_correlation(np.zeros(3), np.zeros(2))
    with pytest.raises(ConfigError, match="top 0 shifts: ask for at least 1"):
        top_shifts(np.zeros(3), 0)


def test_the_check_holds():
    verdicts = [finding.verdict for finding in check_autocorrelation(np.random.default_rng(2), 30)]
    assert verdicts == [HOLDS, ERRATUM]
