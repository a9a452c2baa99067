"""In-context repeats: by hand, and equal to the definition read literally."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import oracle_repeats

from recallgap.errors import ConfigError, CorpusError
from recallgap.recall import ar_hits, repeats

A, B, C, SEPARATOR = 65535, 65536, (1 << 31) - 1, 0


def distances(ids, bounds=None, **options):
    return repeats(np.array(ids), bounds or [0, len(ids)], **options).distance_T.tolist()


def test_by_hand():
    assert distances([A, B, C, A, B]) == [0, 0, 0, 0, 3], "only the last token ends a bigram seen before"
    assert distances([A, A, A]) == [0, 0, 1]
    assert distances([A, B, A, B, A, B]) == [0, 0, 0, 2, 2, 2]
    assert distances([]) == []
    assert distances([A]) == [0]


def test_nothing_is_repeated_across_a_context_border():
    ids = [A, B, A, B, C, A, B, C]
    assert distances(ids, [0, 4, 8]) == [0, 0, 0, 2, 0, 0, 0, 0]
    assert distances(ids, [0, 5, 5, 8]) == [0, 0, 0, 2, 0, 0, 0, 0]
    assert distances(ids, [0, 3, 8]) == [0, 0, 0, 0, 0, 0, 0, 3]


def test_first_and_latest_occurrence_and_followers():
    found = repeats(np.array([A, B, A, C, A, B, A, A, B]), [0, 9])
    assert found.distance_T.tolist() == [0, 0, 0, 0, 0, 4, 4, 0, 3]
    assert found.first_distance_T.tolist() == [0, 0, 0, 0, 0, 4, 4, 0, 7]
    assert found.followers_T.tolist() == [0, 0, 0, 1, 0, 2, 1, 2, 3]


def test_separators():
    ids = [A, SEPARATOR, B, A, SEPARATOR, B]
    assert distances(ids, separator_id=SEPARATOR) == [0] * 6
    assert distances(ids, separator_id=SEPARATOR, separators="keep") == [0, 0, 0, 0, 3, 3]
    assert distances(ids) == [0, 0, 0, 0, 3, 3], "no separator is known"
    found = repeats(np.array([A, SEPARATOR, A, B, A, SEPARATOR]), [0, 6], separator_id=SEPARATOR)
    assert found.followers_T.tolist() == [0, 0, 0, 0, 0, 1], "only B has followed A"


@st.composite
def streams(draw):
    """(ids, borders of contexts) with a tiny vocabulary, so that repeats are common."""
    ids = draw(st.lists(st.sampled_from([SEPARATOR, 1, A, C]), max_size=40))
    cuts = draw(st.lists(st.integers(0, len(ids)), max_size=4))
    return ids, sorted([0, *cuts, len(ids)])


@settings(max_examples=300)
@given(streams(), st.integers(2, 5), st.sampled_from(["drop", "keep"]), st.sampled_from([None, SEPARATOR, 7]))
def test_equal_to_the_definition(stream, order, separators, separator_id):
    ids, bounds = stream
    found = repeats(
        np.array(ids, dtype=np.int32), bounds, order=order, separator_id=separator_id, separators=separators
    )
    rows = list(zip(*(column.tolist() for column in found), strict=True))
    assert rows == oracle_repeats(ids, bounds, order, separator_id, separators)


def test_equal_to_the_definition_in_contexts_of_usual_size():
    """Long enough for collisions in the table; the oracle here is a dictionary."""
    ids = np.minimum(np.random.default_rng(0).zipf(1.3, 20_000), 50_000).astype(np.uint16)
    bounds = [0, 2048, 2049, 9000, 20_000]
    for order in (2, 3):
        found = repeats(ids, bounds, order=order)
        for start, stop in itertools.pairwise(bounds):
            last = {}
            for t in range(start + order - 1, stop):
                ngram = tuple(ids[t - order + 1 : t + 1].tolist())
                assert found.distance_T[t] == t - last.get(ngram, t)
                last[ngram] = t


def test_refusals():
    with pytest.raises(ConfigError, match="order is 1"):
        repeats(np.array([1, 2]), [0, 2], order=1)
    with pytest.raises(ConfigError, match=r"unknown separator policy 'dorp'\. Did you mean 'drop'"):
        repeats(np.array([1, 2]), [0, 2], separators="dorp")
    for beyond in (-1, 1 << 31):
        with pytest.raises(CorpusError, match="beyond 0 to 2147483647"):
            repeats(np.array([1, beyond]), [0, 2])


def test_the_threshold_is_inclusive_and_thresholds_nest():
    distance_T = np.array([0, 1, 1, 1, 9], dtype=np.uint32)
    count_T = np.array([3, 1249, 1250, 1251, 2**63], dtype=np.uint64)
    assert ar_hits(distance_T, count_T, 1250).tolist() == [False, True, True, False, False]
    hits = [ar_hits(distance_T, count_T, threshold) for threshold in (0, 1249, 1250, 2**63)]
    assert all((few <= many).all() for few, many in itertools.pairwise(hits))
    assert hits[-1].sum() == 4
