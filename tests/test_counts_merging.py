"""Adding up counts: any order of parts gives the same bytes; what would be wrong is refused."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import oracle_train_counts
from test_counts_counting import corpus_of, data_files, distinct_ngrams, found

from recallgap.counts import CountConfig, count_ngrams, merge_counts
from recallgap.errors import ArtifactError, ConfigError, CountsError


def part(train, evaluation, out, *, task=None, across=False, orders=(2, 3), block_tokens=10):
    config = CountConfig(task=task, across_documents=across, block_tokens=block_tokens)
    return count_ngrams(train, out, for_corpus=evaluation, orders=orders, config=config)


@pytest.fixture
def train(tmp_path):
    documents = [np.random.default_rng(n).integers(0, 4, 13).tolist() for n in range(5)]
    return corpus_of(tmp_path / "train", documents)


def test_tasks_merge_to_the_bytes_of_one_run(train, tmp_path):
    whole = data_files(part(train, train, tmp_path / "whole").path)
    tasks = [part(train, train, tmp_path / f"task{i}", task=(i, 3)) for i in range(3)]
    for number, order in enumerate(itertools.permutations(tasks)):
        assert data_files(merge_counts(order, tmp_path / f"merged{number}").path) == whole
    first_two = merge_counts(tasks[:2], tmp_path / "two")
    assert first_two.coverage == 45 / 65
    assert data_files(merge_counts([tasks[2], first_two], tmp_path / "nested").path) == whole
    assert (
        merge_counts(tasks, tmp_path / "nested").fingerprint
        == merge_counts(tasks, tmp_path / "two2").fingerprint
    )


@settings(max_examples=10)
@given(st.lists(st.lists(st.integers(0, 3), max_size=9), min_size=2, max_size=4), st.integers(1, 5))
def test_several_corpora_and_tasks(tmp_path_factory, streams, n_tasks):
    """Counts of different training corpora add up, whether counted at once or apart."""
    folder = tmp_path_factory.mktemp("m")
    trains = [corpus_of(folder / f"t{i}", [stream, [i, i]]) for i, stream in enumerate(streams)]
    parts = [part(t, trains[0], folder / f"p{i}", block_tokens=2) for i, t in enumerate(trains)]
    merged = merge_counts(reversed(parts), folder / "merged")
    at_once = [
        part(trains, trains[0], folder / f"a{i}", task=(i, n_tasks), block_tokens=2) for i in range(n_tasks)
    ]
    assert data_files(merge_counts(at_once, folder / "merged2").path) == data_files(merged.path)
    assert merged.inputs["train"] == sorted(t.fingerprint for t in trains)
    expected = sum(
        (oracle_train_counts([s, [i, i]], 2, False) for i, s in enumerate(streams[1:], 1)),
        oracle_train_counts([streams[0], [0, 0]], 2, False),
    )
    ngrams = distinct_ngrams([streams[0], [0, 0]], 2)
    assert found(merged, ngrams, 2) == {ngram: expected[ngram] for ngram in ngrams}


def test_refusals(train, tmp_path):
    first = part(train, train, tmp_path / "first", task=(0, 2))
    other = corpus_of(tmp_path / "other", [[1, 2, 1]])
    cases = [
        (part(train, train, tmp_path / "again", task=(0, 7)), "first and .*again both hold block 0 of"),
        (part(train, other, tmp_path / "keys", task=(1, 2)), "evaluation is .* in .*first, .* in .*keys"),
        (
            part(train, train, tmp_path / "orders", task=(1, 2), orders=(2,)),
            r"orders is \[2, 3\] in .*, \[2\] in",
        ),
        (part(train, train, tmp_path / "borders", task=(1, 2), across=True), "across_documents is False in"),
        (
            part(train, train, tmp_path / "blocks", task=(1, 2), block_tokens=9),
            "block_tokens is 10 in .*, 9 in",
        ),
    ]
    for second, message in cases:
        with pytest.raises(CountsError, match=message):
            merge_counts([first, second], tmp_path / "out")
    with pytest.raises(CountsError, match=r"both hold block 0,2,4,6"):
        merge_counts([first, first], tmp_path / "out")
    with pytest.raises(ConfigError, match="none were given"):
        merge_counts([], tmp_path / "out")
    assert not list(tmp_path.glob("*out*"))
    merge_counts([first], tmp_path / "out")
    with pytest.raises(ArtifactError, match=r"other settings: config\.blocks"):
        merge_counts([first, part(train, train, tmp_path / "rest", task=(1, 2))], tmp_path / "out")
