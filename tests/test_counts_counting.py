"""Counting n-grams: equal to a plain Counter for any corpora, blocks and tasks; whole after a kill."""

import itertools
import signal
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import oracle_train_counts

from recallgap.corpus.store import open_corpus, write_corpus
from recallgap.counts import CountConfig, count_ngrams, counting, keys, open_counts
from recallgap.counts.plan import planned_blocks
from recallgap.errors import ArtifactError, ConfigError, CorpusError, CountsError

EXTREME = [0, 65535, 65536, 2]
DOCUMENTS = st.lists(st.lists(st.sampled_from(EXTREME), max_size=12), max_size=5)


def corpus_of(path, documents, **options):
    """A corpus of lists of ids; what is there already is opened."""
    options = {"vocab_size": 65537, **options}
    return open_corpus(path) if path.exists() else write_corpus(path, documents, **options)


def distinct_ngrams(documents, order):
    return sorted(oracle_train_counts(documents, order, across_documents=True))


def found(counts, ngrams, order):
    ids_Qn = np.array(ngrams, dtype=np.int64).reshape(-1, order)
    return dict(zip(ngrams, counts.lookup(ids_Qn, order).tolist(), strict=True))


def data_files(path):
    return {p.name: p.read_bytes() for p in path.iterdir() if p.name != "run.json"}


@settings(max_examples=40)
@given(
    st.lists(DOCUMENTS, min_size=1, max_size=2, unique_by=str),
    DOCUMENTS,
    st.sets(st.integers(1, 4), min_size=1),
    st.booleans(),
    st.integers(1, 9),
)
def test_counts_are_those_of_a_counter(tmp_path_factory, trains, evaluation, orders, across, block_tokens):
    folder = tmp_path_factory.mktemp("c")
    corpora = [corpus_of(folder / f"t{i}", documents) for i, documents in enumerate(trains)]
    corpus = corpus_of(folder / "e", evaluation)
    config = CountConfig(across_documents=across, block_tokens=block_tokens)
    counts = count_ngrams(corpora, folder / "counts", for_corpus=corpus, orders=orders, config=config)
    assert counts.n_tokens == sum(len(document) for documents in trains for document in documents)
    for order in orders:
        expected = sum(
            (oracle_train_counts(d, order, across) for d in trains), oracle_train_counts([], 2, False)
        )
        in_streams = sum(oracle_train_counts(documents, order, True).total() for documents in trains)
        ngrams = distinct_ngrams(evaluation, order)
        assert found(counts, ngrams, order) == {ngram: expected[ngram] for ngram in ngrams}
        totals = counts.results["orders"][str(order)]
        assert totals == {
            "n_ngrams": expected.total(),
            "n_skipped_at_borders": in_streams - expected.total(),
            "n_found": sum(expected[ngram] for ngram in ngrams),
            "n_keys": len(ngrams),
            "n_keys_found": sum(expected[ngram] > 0 for ngram in ngrams),
        }


def test_keys_are_sorted_as_their_ngrams(tmp_path, monkeypatch):
    monkeypatch.setattr(keys, "BLOCK", 7)
    evaluation = [np.random.default_rng(1).integers(0, 4, 50).tolist(), [3, 65536]]
    corpus = corpus_of(tmp_path / "e", evaluation)
    counts = count_ngrams(corpus, tmp_path / "c", for_corpus=corpus, orders=(1, 3))
    held = {order: counts.keys(order).tolist() for order in counts.key_orders}
    low = (1 << 32) - 1
    singles = [(key,) for key in held[1]]
    pairs = [(key >> 32, key & low) for key in held[2]]
    triples = [(*pairs[key >> 32], key & low) for key in held[3]]
    assert [singles, pairs, triples] == [distinct_ngrams(evaluation, order) for order in (1, 2, 3)]


def test_a_border_is_crossed_only_when_asked(tmp_path):
    train, evaluation = (
        corpus_of(tmp_path / "t", [[1, 2], [3], [], [2, 3]]),
        corpus_of(tmp_path / "e", [[1, 2, 3]]),
    )
    for across, expected in ((False, {(1, 2): 1, (2, 3): 1}), (True, {(1, 2): 1, (2, 3): 2})):
        config = CountConfig(across_documents=across)
        counts = count_ngrams(train, tmp_path / f"c{across}", for_corpus=evaluation, config=config)
        assert found(counts, [(1, 2), (2, 3)], 2) == expected
    assert open_counts(tmp_path / "cFalse").results["orders"]["2"]["n_skipped_at_borders"] == 2


def test_an_evaluation_bigram_across_documents_is_a_key(tmp_path):
    """A packed context may hold it, though training never counts it across a border."""
    corpus = corpus_of(tmp_path / "c", [[1, 2], [3, 4]])
    counts = count_ngrams(corpus, tmp_path / "counts", for_corpus=corpus)
    assert found(counts, [(2, 3), (1, 2)], 2) == {(2, 3): 0, (1, 2): 1}


@pytest.mark.parametrize("n_tasks", [1, 2, 3, 7])
def test_tasks_share_out_every_block_once(n_tasks):
    corpora = [SimpleNamespace(n_tokens=n) for n in (35, 0, 10)]
    shares = [
        [(corpora.index(c), n) for c, numbers in planned_blocks(corpora, config) for n in numbers]
        for config in (CountConfig(task=(i, n_tasks), block_tokens=10) for i in range(n_tasks))
    ]
    assert sorted(itertools.chain(*shares)) == [(0, 0), (0, 1), (0, 2), (0, 3), (2, 0)]
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_a_part_tells_its_coverage(tmp_path):
    train = corpus_of(tmp_path / "t", [[1, 2, 1, 2, 1]])
    config = CountConfig(task=(1, 2), block_tokens=2)
    counts = count_ngrams(train, tmp_path / "c", for_corpus=train, config=config)
    assert (counts.n_tokens, counts.coverage) == (2, 0.4)
    assert found(counts, [(1, 2), (2, 1)], 2) == {(1, 2): 1, (2, 1): 1}, "a block ends no n-gram"


def test_finished_work_is_opened_and_another_plan_refused(tmp_path, monkeypatch):
    train = corpus_of(tmp_path / "t", [[1, 2, 1]])
    first = count_ngrams(train, tmp_path / "c", for_corpus=train)
    monkeypatch.setattr(counting, "_count", None)
    assert count_ngrams(train, tmp_path / "c", for_corpus=train).fingerprint == first.fingerprint
    with pytest.raises(ArtifactError, match=r"config.orders is \[2\] there, \[2, 3\] now"):
        count_ngrams(train, tmp_path / "c", for_corpus=train, orders=(3, 2))


def test_a_stop_between_blocks_changes_no_byte(tmp_path, monkeypatch):
    """Whichever block it is stopped after, with the sums kept after every block or after none."""
    documents = [np.random.default_rng(n).integers(0, 5, 30).tolist() for n in range(4)]
    train, config = corpus_of(tmp_path / "t", documents), CountConfig(block_tokens=20)

    def count(out):
        return count_ngrams(train, tmp_path / out, for_corpus=train, orders=(1, 2, 3), config=config)

    whole, plain = data_files(count("whole").path), counting._count_block
    for seconds, blocks in itertools.product((0, 1000), (1, 3, 5)):
        calls = itertools.count(1)

        def stopping(*arguments, calls=calls, blocks=blocks):
            if next(calls) > blocks:
                raise KeyboardInterrupt
            plain(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(counting, "CHECKPOINT_SECONDS", seconds)
            patch.setattr(counting, "_count_block", stopping)
            with pytest.raises(KeyboardInterrupt):
                count(f"c{seconds}{blocks}")
            assert (tmp_path / f".c{seconds}{blocks}.partial" / counting.SUMS).exists() == (seconds == 0)
        done = iter(range(100))
        monkeypatch.setattr(counting, "_count_block", lambda *a, done=done: (next(done), plain(*a)))
        assert data_files(count(f"c{seconds}{blocks}").path) == whole
        assert next(done) == (6 - blocks if seconds == 0 else 6), "only what was not kept is counted again"


KILLED = """
import os, signal, sys
from recallgap.corpus.store import open_corpus
from recallgap.counts import CountConfig, count_ngrams, counting
counting.CHECKPOINT_SECONDS = 0
class Killing(counting.Progress):
    def advance(self, n):
        super().advance(n)
        if self.done >= 600:
            os.kill(os.getpid(), signal.SIGKILL)
counting.Progress = Killing
corpus = open_corpus(sys.argv[1])
count_ngrams(corpus, sys.argv[2], for_corpus=corpus, orders=(2, 3), config=CountConfig(block_tokens=100))
"""


def test_kill_9_and_the_same_command(tmp_path):
    train = corpus_of(tmp_path / "t", [np.random.default_rng(3).integers(0, 9, 1000).tolist()])
    died = subprocess.run([sys.executable, "-c", KILLED, train.path, tmp_path / "killed"], check=False)
    assert died.returncode == -signal.SIGKILL
    assert (tmp_path / ".killed.partial" / counting.SUMS).exists()
    config = CountConfig(block_tokens=100)
    count = {"for_corpus": train, "orders": (2, 3), "config": config}
    whole = count_ngrams(train, tmp_path / "whole", **count)
    assert data_files(count_ngrams(train, tmp_path / "killed", **count).path) == data_files(whole.path)


def test_every_core_counts_its_share(tmp_path, monkeypatch):
    train = corpus_of(tmp_path / "t", [[1, 2] * 50])
    whole = data_files(count_ngrams(train, tmp_path / "one", for_corpus=train, orders=(2, 5)).path)
    for n_cores in (1, 7, 150):
        monkeypatch.setattr(counting, "_n_cores", lambda n_cores=n_cores: n_cores)
        monkeypatch.setattr(counting, "PIECE", 3)
        several = count_ngrams(train, tmp_path / str(n_cores), for_corpus=train, orders=(2, 5))
        assert data_files(several.path) == whole


def test_refusals(tmp_path):
    train = corpus_of(tmp_path / "t", [[1, 2]], tokenizer="a" * 64)
    other = corpus_of(tmp_path / "o", [[1, 2]], tokenizer="b" * 64)
    smaller = corpus_of(tmp_path / "s", [[1, 2]], vocab_size=3)
    cases = [
        (CountsError, r"o has tokenizer bbbbbbbbbbbb, but .*t has tokenizer aaaaaaaaaaaa", [other], {}),
        (CountsError, r"s has a vocabulary of 3 entries, but .*t has .* of 65,537 entries", [smaller], {}),
        (ConfigError, r"t and .*t are the same training corpus", [train, train], {}),
        (ConfigError, "no training corpus was given", [], {}),
        (ConfigError, r"orders are \[\]", [train], {"orders": ()}),
        (ConfigError, r"orders are \[0, 2\]", [train], {"orders": (2, 0)}),
    ]
    for error, message, trains, options in cases:
        with pytest.raises(error, match=message):
            count_ngrams(trains, tmp_path / "c", for_corpus=train, **options)
    for bad in ({"task": (4, 4)}, {"task": (-1, 2)}, {"block_tokens": 0}):
        with pytest.raises(ConfigError):
            CountConfig(**bad)
    assert not list(tmp_path.glob("*c*"))


@pytest.mark.parametrize("side", ["train", "evaluation"])
def test_an_id_beyond_the_vocabulary_is_named(tmp_path, side):
    """Written by a foreign tool, say: the index says uint16, and so does the file."""
    good = corpus_of(tmp_path / "g", [[1, 2]], vocab_size=100)
    bad = corpus_of(tmp_path / "b", [[5], [1, 2, 3]], vocab_size=100)
    np.array([5, 1, 2, 100], dtype="<u2").tofile(bad.path / "tokens-00000.bin")
    train, evaluation = (bad, good) if side == "train" else (good, bad)
    with pytest.raises(
        CorpusError, match=r"the id at position 2 of document 1 is 100, but the vocab.* has 100"
    ):
        count_ngrams(train, tmp_path / "c", for_corpus=evaluation)


def test_an_unknown_ngram_is_no_zero(tmp_path):
    counts = count_ngrams(
        corpus_of(tmp_path / "t", [[1, 2, 3]]), tmp_path / "c", for_corpus=corpus_of(tmp_path / "e", [[1, 2]])
    )
    with pytest.raises(CountsError, match=r"token ids \[2, 3\] is not among its keys"):
        counts.lookup(np.array([[1, 2], [2, 3]]), 2)
    with pytest.raises(CountsError, match=r"it holds orders 2; count again with --orders 2,3"):
        counts.lookup(np.array([[1, 2, 3]]), 3)
    for beyond in (-1, 65537):
        with pytest.raises(CountsError, match="its vocabulary has 65537 entries"):
            counts.lookup(np.array([[1, 2], [1, beyond]]), 2)
