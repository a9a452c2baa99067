"""The corpus on disk: what goes in comes out, in a layout that others read, and no id ever wraps."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import oracle_megatron_documents

from recallgap import artifact
from recallgap.corpus import open_corpus, tokens_sha256, write_corpus
from recallgap.corpus.store import Shard, corpus_totals, finished_shards, write_shard
from recallgap.errors import ArtifactError, CorpusError
from recallgap.staging import stage

DOCUMENTS = st.lists(st.lists(st.integers(0, 70000), max_size=6), max_size=6)


def write_sharded(path, documents, vocab_size, per_shard):
    """A corpus of several shards, `per_shard` documents each."""
    plan = {
        "config": {"vocab_size": vocab_size, "separator_id": None},
        "inputs": {"tokenizer": None, "text": None},
    }
    with stage(path, kind="corpus", **plan) as staging:
        n_shards = 0
        for start in range(0, len(documents), per_shard):
            shard = Shard(vocab_size)
            for ids in documents[start : start + per_shard]:
                shard.add(ids, n_bytes=2 * len(ids), domain=f"d{len(ids)}", source=f"{start}")
            write_shard(staging, n_shards, shard, {"at": start})
            n_shards += 1
            assert finished_shards(staging) == (n_shards, {"at": start})
        staging.results = corpus_totals(staging, n_shards)
    return open_corpus(path)


@settings(max_examples=30)
@given(documents=DOCUMENTS, per_shard=st.integers(1, 4), wide=st.booleans())
def test_every_slice_of_the_stream_over_any_shards(documents, per_shard, wide, tmp_path_factory):
    if not wide:
        documents = [[i % 60000 for i in ids] for ids in documents]
    corpus = write_sharded(tmp_path_factory.mktemp("c") / "c", documents, 70001 if wide else 60000, per_shard)
    stream = list(itertools.chain(*documents))
    assert corpus.n_tokens == len(stream)
    assert corpus.ids(0, 0).dtype == (np.int32 if wide else np.uint16)
    for start in range(len(stream) + 1):
        for stop in range(start, len(stream) + 1):
            assert corpus.ids(start, stop).tolist() == stream[start:stop]
    shards = [p.with_suffix("") for p in corpus.artifact.files("tokens-") if p.suffix == ".bin"]
    assert [list(d) for s in shards for d in oracle_megatron_documents(s)] == documents
    if documents:
        assert np.diff(corpus.document_bounds_N1).tolist() == [len(ids) for ids in documents]
        owner = [n for n, ids in enumerate(documents) for _ in ids]
        assert corpus.document_of(np.arange(len(stream))).tolist() == owner


@pytest.mark.parametrize("vocab_size", [65536, 65537])
def test_ids_at_the_border_of_uint16(vocab_size, tmp_path):
    ids = [0, 65534, 65535, vocab_size - 1]
    corpus = write_corpus(tmp_path / "c", [ids], vocab_size=vocab_size)
    assert corpus.ids(0, 4).tolist() == ids
    assert corpus.ids(0, 4).dtype == (np.uint16 if vocab_size == 65536 else np.int32)


@pytest.mark.parametrize("wrong", [-1, 65536, 1 << 40])
def test_an_id_outside_the_vocabulary_is_refused_never_wrapped(wrong, tmp_path):
    with pytest.raises(
        CorpusError, match=rf"source '1'\): the id at position 1 is {wrong}, .* has 65536 entries"
    ):
        write_corpus(tmp_path / "c", [[1, 2], [3, wrong]], vocab_size=65536)
    assert not (tmp_path / "c").exists()


def test_documents_of_no_one_and_two_tokens(tmp_path):
    corpus = write_corpus(tmp_path / "c", [[], [1], ([2, 3], "b"), []], vocab_size=9)
    assert corpus.document_bounds_N1.tolist() == [0, 0, 1, 3, 3]
    assert corpus.document_of(np.array([0, 1, 2])).tolist() == [1, 2, 2]
    assert corpus.documents["domain"].to_pylist() == ["", "", "b", ""]
    assert corpus.artifact.results["domains"]["b"] == {"n_bytes": 0, "n_documents": 1, "n_tokens": 2}
    assert corpus.artifact.results["longest_document"] == {"n_tokens": 2, "source": "2"}


def test_a_corpus_of_no_documents(tmp_path):
    corpus = write_corpus(tmp_path / "c", [], vocab_size=9)
    assert (corpus.n_tokens, corpus.n_documents, corpus.document_bounds_N1.tolist()) == (0, 0, [0])
    assert corpus.ids(0, 0).tolist() == []


def test_slices_outside_the_stream(tmp_path):
    corpus = write_corpus(tmp_path / "c", [[1, 2]], vocab_size=9)
    for start, stop in ((-1, 1), (0, 3), (2, 1)):
        with pytest.raises(IndexError, match="of a corpus of 2"):
            corpus.ids(start, stop)


def test_the_digest_is_of_the_ids_and_not_of_their_width_or_shards(tmp_path):
    documents = [[1, 2], [3], [4, 5, 6]]
    narrow = write_corpus(tmp_path / "a", documents, vocab_size=9)
    wide = write_sharded(tmp_path / "b", documents, 70000, 1)
    assert tokens_sha256(narrow) == tokens_sha256(wide)
    assert tokens_sha256(narrow) != tokens_sha256(
        write_corpus(tmp_path / "c", [[1, 2, 3, 4, 5, 7]], vocab_size=9)
    )


def test_a_corpus_from_ids_has_no_tokenizer(tmp_path):
    with pytest.raises(CorpusError, match="it has none, it was written from ids"):
        write_corpus(tmp_path / "c", [[1]], vocab_size=9).tokenizer()


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("tokens-00000.idx", lambda raw: b"MMIDIDY" + raw[7:], "does not start as a Megatron index"),
        ("tokens-00000.idx", lambda raw: raw[:9] + b"\x02" + raw[10:], "version 2, dtype code 8"),
        ("tokens-00000.idx", lambda raw: raw[:17] + b"\x06" + raw[18:], "version 1, dtype code 6"),
        ("tokens-00000.bin", lambda raw: raw[:-1], "has 5 bytes, but 6 were written"),
    ],
)
def test_damaged_shards_are_refused(name, change, message, tmp_path, monkeypatch):
    monkeypatch.setattr(artifact, "ALWAYS_CHECKED", -1)  # as in a large corpus, whose content is not hashed
    path = write_corpus(tmp_path / "c", [[1, 2, 3]], vocab_size=9).path / name
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises((CorpusError, ArtifactError), match=message):
        open_corpus(tmp_path / "c")
