"""Kernels made from the input: the program against a scan at its lags, the rules for lags, every erratum."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from theory_kernel_oracles import (
    oracle_distances,
    oracle_equal_pairs,
    oracle_read_at,
    oracle_top,
)
from theory_oracles import oracle_answers

from recallgap.errors import ConfigError
from recallgap.theory.autocorrelation import cross_correlation
from recallgap.theory.data_dependent import (
    SEVERAL,
    check_data_dependent,
    corrected_lags,
    covers,
    needed_lags,
    one_hot,
    printed_lags,
    program,
    random_instance,
    rows_of,
    solve,
)
from recallgap.theory.finding import ERRATUM
from recallgap.theory.mqar import NO_ANSWER

TRIPLES = st.lists(st.tuples(*3 * [st.integers(0, 4)]), min_size=1, max_size=6)
KEYS, VALUES, QUERIES = (np.array(x) for x in ([0, 1, 2], [3, 3, 3], [4, 4, 0]))
"""Values that repeat, and one match: the key of the first triple at the query of the last, 8 rows on."""


def of(triples):
    return [np.array(x) for x in zip(*triples, strict=True)]


def as_tokens(answers):
    return [NO_ANSWER if x is None else x for x in answers]


@given(TRIPLES, st.sets(st.integers(1, 17), min_size=1, max_size=5))
def test_the_program_reads_at_its_lags_and_nowhere_else(triples, lags):
    keys, values, queries = of(triples)
    lags = sorted(lag for lag in lags if lag < 3 * len(keys)) or [1]
    scanned = oracle_read_at(keys.tolist(), values.tolist(), queries.tolist(), lags)
    expected = [SEVERAL if len(x) > 1 else x[0] if x else NO_ANSWER for x in scanned]
    assert solve(keys, values, queries, 5, lags[::-1]).tolist() == expected


@given(TRIPLES, st.integers(1, 4))
def test_lags_are_those_of_their_rules(triples, t):
    keys, values, queries = of(triples)
    tokens = rows_of(keys, values, queries).tolist()
    assert tokens == [token for triple in triples for token in triple]
    u_Nc = one_hot(np.array(tokens), 5)
    counts = [oracle_equal_pairs(tokens, lag) for lag in range(len(tokens))]
    assert printed_lags(u_Nc, t).tolist() == [r for r in oracle_top(counts, t + 1) if r != 2][:t]
    distances = oracle_distances(keys.tolist(), queries.tolist())
    assert needed_lags(keys, queries).tolist() == [3 * s + 2 for s in distances]
    assert set(corrected_lags(u_Nc, t)) <= {3 * s + 2 for s in distances}
    assert len(corrected_lags(u_Nc, t)) == min(t, len(distances))


@given(st.randoms(use_true_random=False), st.integers(1, 14), st.integers(1, 5))
def test_the_corrected_rule_solves_whatever_has_at_most_t_distances(random, n, t):
    triples = random_instance(np.random.default_rng(random.getrandbits(32)), n, t)
    lists = [x.tolist() for x in triples]
    assert len(set(lists[0])) == n
    assert len(oracle_distances(lists[0], lists[2])) <= t
    lags = corrected_lags(one_hot(rows_of(*triples), 2 * n), t)
    assert solve(*triples, 2 * n, lags).tolist() == as_tokens(oracle_answers(*lists))


def test_the_printed_rule_fails_and_the_assumption_says_so():
    """Lag 3, of values with values, scores 4; the only one that is needed, 8, scores 1."""
    u_Nc = one_hot(rows_of(KEYS, VALUES, QUERIES), 5)
    score = cross_correlation(u_Nc.T, u_Nc.T).sum(0)
    assert (score[3], score[8]) == (4, 1)
    assert needed_lags(KEYS, QUERIES).tolist() == [8]
    printed = printed_lags(u_Nc, 1)
    assert printed.tolist() == [3]
    assert not covers(printed, KEYS, QUERIES)
    assert solve(KEYS, VALUES, QUERIES, 5, printed).tolist() == [NO_ANSWER, NO_ANSWER, NO_ANSWER]
    corrected = corrected_lags(u_Nc, 1)
    assert covers(corrected, KEYS, QUERIES)
    assert solve(KEYS, VALUES, QUERIES, 5, corrected).tolist() == [NO_ANSWER, NO_ANSWER, 3]
    assert covers(printed_lags(u_Nc, 4), KEYS, QUERIES), "with enough lags the printed rule has it too"


def test_keys_must_be_unique():
    keys, values, queries = np.array([0, 0, 1]), np.array([2, 3, 2]), np.array([4, 4, 0])
    lags = corrected_lags(one_hot(rows_of(keys, values, queries), 5), 2)
    assert sorted(lags) == [5, 8]
    assert not covers(lags, keys, queries)
    assert solve(keys, values, queries, 5, lags)[2] == SEVERAL


def test_its_own_key_is_no_answer():
    """Every query equals its own key, so lag 2 scores highest of all: it has to be left out like lag 0."""
    keys = queries = np.arange(3)
    u_Nc = one_hot(rows_of(keys, KEYS + 3, queries), 6)
    assert 2 not in printed_lags(u_Nc, 6)
    assert corrected_lags(u_Nc, 3).tolist() == []
    assert solve(keys, KEYS + 3, queries, 6, []).tolist() == 3 * [NO_ANSWER]
    assert solve(keys, KEYS + 3, queries, 6, [2]).tolist() == [3, 4, 5]


def test_a_key_that_leaves_its_block_is_no_match_in_the_next():
    """Key 2 moved by 8 rows would stand at the query of triple 1 in a second block of N rows."""
    keys, values, queries = np.array([0, 1, 2]), np.array([3, 3, 3]), np.array([4, 2, 0])
    assert solve(keys, values, queries, 5, [8, 5]).tolist() == [NO_ANSWER, NO_ANSWER, 3]


@pytest.mark.parametrize(("n", "t"), [(2, 1), (5, 2), (12, 4)])
def test_layers_and_parameters(n, t):
    model, c = program(list(range(5, 5 + t)) if n > 2 else [5], n, 2 * n), 2 * n
    assert model.notation == (3 * n, 5, c, 2 * t * 3 * n, 3 * c)
    assert model.n_params <= 120 * t * 3 * n * c


def test_refusals():
    with pytest.raises(ConfigError, match="smallest c that works is 5"):
        one_hot(np.array([0, 4]), 4)
    for lags in ([], [0], [9]):
        with pytest.raises(ConfigError, match="at least 1 triple and 1 lag, and lags from 1 to 8 rows"):
            program(lags, 3, 5)


def test_the_check_holds():
    findings = check_data_dependent(np.random.default_rng(2), 40)
    assert [finding.verdict for finding in findings] == [ERRATUM, ERRATUM]
