"""Intervals from per-document sums: against literal deletion, a grid of shares, tables; their coverage."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from oracles import oracle_jackknife_error, oracle_share_is_possible, oracle_sign_flip_p

from recallgap.slices.intervals import (
    Interval,
    effective_documents,
    mean_interval,
    share_set,
    sign_flip_p,
    t_quantile,
)

T_TABLE = [
    (0.95, 1, 12.7062),
    (0.95, 2, 4.30265),
    (0.95, 10, 2.22814),
    (0.95, 30, 2.04227),
    (0.90, 100, 1.66023),
    (0.99, 5, 4.03214),
    (0.999, 1, 636.619),
    (0.95, 200_000, 1.95998),
]
REAL = st.floats(-5, 5).map(lambda x: round(x, 3))
DOCUMENTS = st.lists(st.tuples(REAL, REAL, st.integers(0, 9)), min_size=2, max_size=12)


@pytest.mark.parametrize(("level", "df", "t"), T_TABLE)
def test_t_quantiles_are_those_of_the_tables(level, df, t):
    assert t_quantile(level, df) == pytest.approx(t, rel=3e-6)


@settings(deadline=None)
@given(DOCUMENTS)
def test_jackknife_is_the_deletion_of_each_document(documents):
    sums, _, tokens = (np.array(column, float) for column in zip(*documents, strict=True))
    found, held = mean_interval(sums, tokens, 0.9), int((tokens > 0).sum())
    if held == 0:
        assert found == Interval(None)
        return
    assert found.estimate == pytest.approx(sums[tokens > 0].sum() / tokens.sum(), abs=1e-12)
    if held == 1:
        assert found.low is None and found.high is None
        return
    half = t_quantile(0.9, held - 1) * oracle_jackknife_error(sums.tolist(), tokens.tolist())
    assert found.high - found.estimate == pytest.approx(half, abs=1e-9)
    assert found.estimate - found.low == pytest.approx(half, abs=1e-9)


def contains(found, share):
    inside = found.low is not None and found.low <= share <= found.high
    return {"interval": inside, "outside": not inside, "everything": True}[found.kind]


@settings(deadline=None)
@given(DOCUMENTS)
def test_share_sets_hold_what_a_grid_of_t_tests_leaves_possible(documents):
    part, whole, _ = (np.array(column, float) for column in zip(*documents, strict=True))
    assume(whole.any())  # a gap that is 0 in every document has no share to test
    found, t = share_set(part, whole, 0.9), t_quantile(0.9, len(part) - 1)
    for share in np.linspace(-4, 4, 161):
        border = min((abs(share - end) for end in (found.low, found.high) if end is not None), default=1.0)
        if border > 1e-3 and not is_close_call(part, whole, share, t):
            assert contains(found, share) == oracle_share_is_possible(part, whole, share, t)


def is_close_call(part, whole, share, t):
    """Rounding decides where the test statistic is within 1e-6 of its bound."""
    rest = part - share * whole
    bound = t * rest.std(ddof=1) / math.sqrt(len(rest))
    return abs(abs(rest.mean()) - bound) < 1e-6


def test_each_kind_of_share_set_occurs():
    whole = np.array([1.0, 1.2, 0.9, 1.1])
    assert share_set(whole * 0.6 + [0.01, -0.01, 0, 0.01], whole, 0.95).kind == "interval"
    unsure = np.array([1.0, -1.0, 1.0, -0.9])
    assert share_set(np.array([1.0, 1.0, 1.1, 0.9]), unsure, 0.95).kind == "outside"
    assert share_set(np.array([0.3, 0.3, -0.4, 0.1]), unsure, 0.95).kind == "everything"
    assert share_set(np.array([0.5]), np.array([1.0]), 0.95).kind == "unknown"


def test_the_share_of_no_gap_has_no_estimate():
    found = share_set(np.zeros(5), np.zeros(5), 0.95)
    assert (found.estimate, found.kind) == (None, "everything")


@pytest.mark.parametrize("n_documents", [1, 3, 8, 9, 11])
def test_sign_flip_p_approaches_that_of_all_signs(n_documents):
    sums, n_draws = np.random.default_rng(n_documents).normal(0.4, 1, n_documents), 20_000
    exact = oracle_sign_flip_p(sums.tolist())
    five_errors = 5 * math.sqrt(exact * (1 - exact) / n_draws) + 1 / n_draws
    assert abs(sign_flip_p(sums, n_draws, seed=1) - exact) <= five_errors


def test_sign_flip_p_is_seeded_and_never_0():
    sums = np.arange(1.0, 60.0)
    assert sign_flip_p(sums, 999, seed=3) == sign_flip_p(sums, 999, seed=3) == 1 / 1000
    assert sign_flip_p(np.zeros(40), 999, seed=3) == 1.0


def test_effective_documents_falls_with_unequal_lengths():
    assert effective_documents(np.array([7.0, 7.0, 7.0])) == pytest.approx(3)
    assert effective_documents(np.array([1000.0, 1.0, 1.0])) < 1.01


def draw_corpus(random, n_documents):
    """Tokens and gap sums of documents: log-normal lengths, 7 % hits, effects that a document's tokens share.

    Also the standard error that treats tokens as independent.
    """
    n = np.maximum(np.exp(random.normal(math.log(330), 1.0, n_documents)).astype(int), 2)
    hits = random.binomial(n, random.beta(2, 26, n_documents))
    hit_gap = 1.5 * np.exp(random.normal(0, 0.6, n_documents) - 0.18)
    other_gap = 0.05 + random.normal(0, 0.1, n_documents)
    part = hits * hit_gap + random.normal(0, 1.5, n_documents) * np.sqrt(hits)
    rest = (n - hits) * other_gap + random.normal(0, 0.6, n_documents) * np.sqrt(n - hits)
    squares = (hits * (hit_gap**2 + 1.5**2) + (n - hits) * (other_gap**2 + 0.6**2)).sum()
    mean = (part + rest).sum() / n.sum()
    token_error = math.sqrt((squares / n.sum() - mean**2) / n.sum())
    return n, part, part + rest, token_error


def test_intervals_cover_the_truth_where_independent_tokens_would_not():
    n, part, whole, _ = draw_corpus(np.random.default_rng(99), 1_000_000)
    true_gap, true_share = whole.sum() / n.sum(), part.sum() / whole.sum()
    random, n_repeats = np.random.default_rng(5), 600
    covered = {"jackknife": 0, "fieller": 0, "tokens": 0}
    for _ in range(n_repeats):
        n, part, whole, token_error = draw_corpus(random, 50)
        gap, share = mean_interval(whole, n, 0.95), share_set(part, whole, 0.95)
        covered["jackknife"] += gap.low <= true_gap <= gap.high
        covered["fieller"] += contains(share, true_share)
        covered["tokens"] += abs(gap.estimate - true_gap) <= 1.96 * token_error
    assert covered["jackknife"] >= 0.90 * n_repeats
    assert covered["fieller"] >= 0.90 * n_repeats
    assert covered["tokens"] <= 0.60 * n_repeats, "the simulation has no effect of documents"
