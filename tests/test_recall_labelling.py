"""Labels of a corpus: equal to the definitions for any documents, contexts and counts; whole after a stop."""

import json
import signal
import subprocess
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import oracle_label_rows, oracle_train_counts
from test_counts_counting import corpus_of, data_files

from recallgap.corpus.store import tokens_sha256
from recallgap.counts import CountConfig, count_ngrams
from recallgap.errors import ArtifactError, ConfigError, CountsError
from recallgap.recall import LabelConfig, label, labelling, open_labels

SEPARATOR = 0
DOCUMENTS = st.lists(
    st.tuples(
        st.lists(st.sampled_from([SEPARATOR, 1, 65535, 65536]), max_size=9), st.sampled_from(["a", "", "b"])
    ),
    max_size=6,
)


def labelled(folder, documents, train, *, count_orders=(), **options):
    """Labels of documents with counts of training documents, made in `folder`."""
    corpus = corpus_of(folder / "eval", documents, separator_id=SEPARATOR)
    trained = corpus_of(folder / "train", train)
    config = LabelConfig(count_orders=count_orders, **options)
    counts = count_ngrams(trained, folder / "counts", for_corpus=corpus, orders=(config.order, *count_orders))
    return label(corpus, counts, folder / "labels", config=config)


@settings(max_examples=40)
@given(
    DOCUMENTS,
    DOCUMENTS,
    st.integers(2, 3),
    st.sampled_from(["packed", "document"]),
    st.integers(2, 8),
    st.integers(0, 3),
    st.integers(1, 12),
)
def test_the_whole_chain(
    tmp_path_factory, documents, train, order, policy, context_len, threshold, shard_tokens
):
    train = [ids for ids, _ in train]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(labelling, "SHARD_TOKENS", shard_tokens)
        labels = labelled(
            tmp_path_factory.mktemp("l"),
            documents,
            train,
            order=order,
            policy=policy,
            context_len=context_len,
            max_train_count=threshold,
            count_orders=(4,),
        )
    counts = oracle_train_counts(train, order, across_documents=False)
    rows = oracle_label_rows(documents, policy, context_len, order, counts, threshold, SEPARATOR)
    further = oracle_train_counts(train, 4, across_documents=False)
    ids = [i for document, _ in documents for i in document]
    for t, row in enumerate(rows):
        row["train_count_4"] = further[tuple(ids[t - 3 : t + 1])] if row["position"] >= 3 else 0
    table = [row for path in labels.artifact.files("tokens-") for row in pq.read_table(path).to_pylist()]
    assert table == rows
    assert labels.results["n_tokens"] == len(rows)
    assert labels.results["n_repeated"] == sum(row["distance"] > 0 for row in rows)
    assert labels.results["n_ar_hits"] == sum(row["ar_hit"] for row in rows)
    codes, names = labels.domains()
    assert [names[code] for code in codes] == [row["domain"] for row in rows]
    for name in ("document", "token", "distance", "train_count", "ar_hit"):
        assert labels.column(name).tolist() == [row[name] for row in rows]


def test_columns_types_and_results(tmp_path):
    documents = [([1, 2, 1, 2], "a"), ([], "b"), ([3], "b")]
    labels = labelled(tmp_path, documents, [[1, 2, 1, 2]], context_len=3, count_orders=(3,))
    schema = pq.read_schema(labels.path / "tokens-00000.parquet")
    assert {field.name: str(field.type) for field in schema} == {
        **dict.fromkeys(
            ["document", "context", "position", "distance", "first_distance", "followers"], "uint32"
        ),
        **dict.fromkeys(["train_count", "train_count_3"], "uint64"),
        "token": "int32",
        "domain": "dictionary<values=string, indices=int32, ordered=0>",
        "ar_hit": "bool",
    }
    assert labels.config == {
        "order": 2,
        "policy": "packed",
        "context_len": 3,
        "max_train_count": 1250,
        "rate_per_million": None,
        "separators": "drop",
        "count_orders": [3],
    }
    corpus = corpus_of(tmp_path / "eval", [])
    assert labels.inputs["corpus"] == corpus.fingerprint
    assert labels.results == {
        "n_tokens": 5,
        "n_contexts": 2,
        "n_repeated": 0,
        "n_ar_hits": 0,
        "tokens_sha256": tokens_sha256(corpus),
        "train_tokens": 4,
        "coverage": 1.0,
    }


def test_the_paper_s_threshold_is_inclusive(tmp_path):
    """Bigrams seen 1250 and 1251 times in training, both repeated in context."""
    train = [[1, 2]] * 1250 + [[3, 4]] * 1251
    labels = labelled(tmp_path, [([1, 2, 3, 4, 1, 2, 3, 4], "")], train)
    assert labels.column("train_count").tolist() == [0, 1250, 0, 1251, 0, 1250, 0, 1251]
    assert labels.column("distance").tolist() == [0, 0, 0, 0, 0, 4, 4, 4]
    assert labels.column("ar_hit").tolist() == [False] * 5 + [True, True, False]


@pytest.mark.parametrize("policy", ["packed", "document"])
def test_tiny_documents_and_contexts(tmp_path, policy):
    for number, documents in enumerate(([], [[]], [[1]], [[1], [1], [1]], [[1, 1], [], [1, 1]])):
        folder = tmp_path / str(number)
        folder.mkdir()
        labels = labelled(folder, [(ids, "") for ids in documents], [[1, 1]], policy=policy, context_len=2)
        n_tokens = sum(map(len, documents))
        assert len(labels.column("ar_hit")) == len(labels.domains()[0]) == n_tokens
        assert not labels.column("ar_hit").any(), "a context of two tokens repeats nothing"


@pytest.mark.parametrize(("vocab_size", "dtype"), [(65536, np.uint16), (65537, np.int32)])
def test_ids_at_the_edge_of_16_bits(tmp_path, vocab_size, dtype):
    top = vocab_size - 1
    corpus = corpus_of(tmp_path / "c", [[0, top, 0, top, 0]], vocab_size=vocab_size)
    counts = count_ngrams(corpus, tmp_path / "counts", for_corpus=corpus)
    labels = label(corpus, counts, tmp_path / "l")
    assert labels.column("token").dtype == dtype
    assert labels.column("token").tolist() == [0, top, 0, top, 0]
    assert labels.column("distance").tolist() == [0, 0, 0, 2, 2]
    assert labels.column("train_count").tolist() == [0, 2, 2, 2, 2]


def test_counts_of_a_larger_corpus_serve(tmp_path):
    train = corpus_of(tmp_path / "t", [[1, 2, 1, 2]])
    large, small = corpus_of(tmp_path / "e", [[1, 2], [2, 1, 2]]), corpus_of(tmp_path / "s", [[2, 1, 2]])
    counts = count_ngrams(train, tmp_path / "c", for_corpus=large)
    assert label(small, counts, tmp_path / "l").column("train_count").tolist() == [0, 1, 2]
    reverse = count_ngrams(train, tmp_path / "c2", for_corpus=small)
    with pytest.raises(CountsError, match=r"token ids \[2, 2\] is not among its keys"):
        label(large, reverse, tmp_path / "l2")


def test_counts_that_do_not_fit(tmp_path, capsys):
    corpus = corpus_of(tmp_path / "c", [[1, 2, 1, 2]], tokenizer="a" * 64)
    other = corpus_of(tmp_path / "o", [[1, 2, 1, 2]], tokenizer="b" * 64)
    foreign = count_ngrams(other, tmp_path / "foreign", for_corpus=other)
    with pytest.raises(
        CountsError, match=r"c has tokenizer aaaaaaaaaaaa, but .*foreign has tokenizer bbbbbbbbbbbb"
    ):
        label(corpus, foreign, tmp_path / "l")
    counts = count_ngrams(corpus, tmp_path / "counts", for_corpus=corpus)
    with pytest.raises(CountsError, match=r"hold orders 2, but \[3\] is needed too; count with --orders 2,3"):
        label(corpus, counts, tmp_path / "l", config=LabelConfig(count_orders=(3,)))
    assert not (tmp_path / "l").exists()
    config = CountConfig(task=(0, 2), block_tokens=1)
    half = count_ngrams(corpus, tmp_path / "half", for_corpus=corpus, config=config)
    capsys.readouterr()
    assert label(corpus, half, tmp_path / "l").results["coverage"] == 0.5
    assert "only 50.0% of the training tokens were counted" in capsys.readouterr().err


def test_a_config_that_cannot_be():
    for bad, message in [
        ({"order": 1}, "order is 1"),
        ({"context_len": 1}, "context_len is 1"),
        ({"policy": "pack"}, "unknown context policy 'pack'"),
        ({"separators": "no"}, "unknown separator policy 'no'"),
        ({"max_train_count": 5, "rate_per_million": 1}, "both set the threshold"),
        ({"max_train_count": -1}, "max_train_count is -1"),
        ({"rate_per_million": float("nan")}, "rate_per_million is nan"),
        ({"count_orders": (2,)}, r"count_orders are \[2\]"),
        ({"count_orders": (3, 3)}, r"count_orders are \[3, 3\]"),
    ]:
        with pytest.raises(ConfigError, match=message):
            LabelConfig(**bad)


def test_the_rate_becomes_a_count_rounded_down(tmp_path):
    train = [[1, 2]] * 700
    labels = labelled(tmp_path, [([1, 2, 1, 2], "")], train, rate_per_million=500_000.9)
    assert labels.config["max_train_count"] == 700
    assert labels.config["rate_per_million"] == 500_000.9
    assert LabelConfig(rate_per_million=0.125).threshold(10**10) == 1250
    assert labels.column("ar_hit").tolist() == [False, False, False, True]


@pytest.fixture
def large(tmp_path):
    """(corpus, its counts) of a thousand tokens in several shards."""
    documents = [np.random.default_rng(n).integers(0, 9, 100).tolist() for n in range(10)]
    corpus = corpus_of(tmp_path / "corpus", documents)
    return corpus, count_ngrams(corpus, tmp_path / "counts", for_corpus=corpus)


def test_a_stop_between_shards_changes_no_byte(large, tmp_path, monkeypatch):
    monkeypatch.setattr(labelling, "SHARD_TOKENS", 100)
    config, plain = LabelConfig(context_len=30), labelling.write_table
    whole = label(*large, tmp_path / "whole", config=config)
    assert len(whole.artifact.files("tokens-")) == 10
    monkeypatch.setattr(labelling, "write_table", lambda path, columns: (stop(path), plain(path, columns)))

    def stop(path):
        if "00003" in path.name:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        label(*large, tmp_path / "stopped", config=config)
    written = []
    monkeypatch.setattr(
        labelling, "write_table", lambda path, columns: (written.append(path), plain(path, columns))
    )
    assert data_files(label(*large, tmp_path / "stopped", config=config).path) == data_files(whole.path)
    assert len(written) == 7
    assert label(*large, tmp_path / "stopped", config=config).fingerprint == whole.fingerprint
    assert len(written) == 7, "a finished one is only opened"
    with pytest.raises(ArtifactError, match=r"config\.order is|config\.context_len is 30 there, 31 now"):
        label(*large, tmp_path / "stopped", config=LabelConfig(context_len=31))


KILLED = """
import os, signal, sys
from recallgap.corpus.store import open_corpus
from recallgap.counts import open_counts
from recallgap.recall import LabelConfig, label, labelling
labelling.SHARD_TOKENS = 100
class Killing(labelling.Progress):
    def advance(self, n):
        super().advance(n)
        if self.done >= 400:
            os.kill(os.getpid(), signal.SIGKILL)
labelling.Progress = Killing
label(open_corpus(sys.argv[1]), open_counts(sys.argv[2]), sys.argv[3], config=LabelConfig(context_len=30))
"""


def test_kill_9_and_the_same_command(large, tmp_path, monkeypatch):
    corpus, counts = large
    words = [sys.executable, "-c", KILLED, corpus.path, counts.path, tmp_path / "killed"]
    assert subprocess.run(words, check=False).returncode == -signal.SIGKILL
    assert len(list((tmp_path / ".killed.partial").iterdir())) >= 4
    monkeypatch.setattr(labelling, "SHARD_TOKENS", 100)
    config = LabelConfig(context_len=30)
    whole = label(*large, tmp_path / "whole", config=config)
    assert data_files(label(*large, tmp_path / "killed", config=config).path) == data_files(whole.path)
    assert json.loads((whole.path / "meta.json").read_text())["results"]["n_tokens"] == 1000
    assert open_labels(tmp_path / "killed").fingerprint == whole.fingerprint
