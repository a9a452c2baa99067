"""A corpus and a model become losses: every token once, in any order of work, whole after a kill."""

import dataclasses
import math
import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import models
import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from models import V, losses_in, random_corpus
from oracles import oracle_losses

from recallgap.artifact import open_artifact, staging_path
from recallgap.corpus import open_corpus, tokens_sha256, write_corpus
from recallgap.errors import ArtifactError
from recallgap.evaluate import Checkpoint, EvaluateConfig, evaluate, heads
from recallgap.evaluate import checkpoint as checkpoint_module

EXACT = 1e-5  # nats; float32 with logits of about 10 is good to 1e-6


@pytest.fixture(scope="module")
def llama():
    return Checkpoint.of(models.random_model("llama"), name="llama")


@pytest.fixture(scope="module")
def exact_llama():
    return models.random_model("llama").double().eval()


documents = st.lists(st.lists(st.integers(0, V - 1), max_size=9), max_size=5)


@settings(max_examples=25, deadline=None)
@given(
    documents=documents,
    policy=st.sampled_from(["packed", "document"]),
    context_len=st.integers(2, 9),
    window=st.sampled_from([None, 2, 3]),
    prefix=st.sampled_from(["none", "eos"]),
    batch_tokens=st.sampled_from([1, 12, 4096]),
    shard_tokens=st.sampled_from([6, 4096]),
)
def test_any_corpus_and_config(llama, exact_llama, tmp_path_factory, documents, **settings):
    folder, config = tmp_path_factory.mktemp("any"), EvaluateConfig(**settings)
    corpus = write_corpus(folder / "corpus", documents, vocab_size=V)
    made = evaluate(llama, corpus, folder / "losses", config=config)

    ids = [i for document in documents for i in document]
    spans = documents if config.policy == "document" else [ids]
    bounds = [0]
    for span in spans:
        context, last = bounds[-1], bounds[-1] + len(span)
        while context < last:
            end = min(context + config.context_len, last)
            bounds += range(context + (config.window or end), end, config.window or end)
            bounds.append(end)
            context = end
    before = [] if config.prefix == "none" else [exact_llama.config.eos_token_id]
    wanted = oracle_losses(exact_llama, ids, bounds, before)
    found_T = losses_in(made)
    np.testing.assert_allclose(found_T, np.array(wanted, dtype=float), rtol=0, atol=EXACT)
    assert made.results["n_tokens"] == len(wanted)
    assert made.results["n_scored"] == sum(loss is not None for loss in wanted)
    assert made.results["loss_sum"] == pytest.approx(np.nansum(found_T.astype(np.float64)), abs=1e-9)


def test_documents_of_no_one_and_two_tokens(llama, tmp_path):
    corpus = random_corpus(tmp_path / "corpus", (0, 1, 2))
    config = EvaluateConfig(policy="document", context_len=8)
    made = evaluate(llama, corpus, tmp_path / "losses", config=config)
    assert np.isnan(losses_in(made)).tolist() == [True, True, False]
    assert made.results["n_scored"] == 1
    assert math.isfinite(made.results["perplexity"])


@pytest.mark.parametrize("lengths", [(), (0, 0), (1,)])
def test_nothing_to_score(llama, lengths, tmp_path):
    made = evaluate(llama, random_corpus(tmp_path / "corpus", lengths), tmp_path / "losses")
    assert made.results["n_scored"] == made.results["loss_sum"] == 0
    assert made.results["perplexity"] is None
    assert len(losses_in(made)) == sum(lengths)


@pytest.mark.parametrize(("n_tokens", "unscored"), [(8, [0]), (9, [0, 8]), (10, [0, 8]), (16, [0, 8])])
def test_exactly_one_context_and_one_token_more(llama, n_tokens, unscored, tmp_path):
    corpus = random_corpus(tmp_path / "corpus", (n_tokens,))
    made = evaluate(llama, corpus, tmp_path / "losses", config=EvaluateConfig(context_len=8))
    assert np.flatnonzero(np.isnan(losses_in(made))).tolist() == unscored


@pytest.mark.parametrize("prefix", ["none", "bos"])
def test_each_token_is_scored_once(llama, prefix, monkeypatch, tmp_path):
    corpus = random_corpus(tmp_path / "corpus", (5, 0, 1, 30, 2, 17))
    scored = []
    count = heads.TiledHead.losses_of

    def counting(head, hidden_ND, targets_N):
        scored.append(len(targets_N))
        return count(head, hidden_ND, targets_N)

    config = EvaluateConfig(policy="document", context_len=8, prefix=prefix, batch_tokens=20, shard_tokens=9)
    probe = len(torch.zeros(2, heads.PROBE_LEN).flatten())
    monkeypatch.setattr(heads.TiledHead, "losses_of", counting)
    made = evaluate(llama, corpus, tmp_path / "losses", config=config)
    windows = 1 + 1 + 4 + 1 + 3
    wanted = 55 if prefix == "bos" else 55 - windows
    assert sum(scored) - probe == made.results["n_scored"] == wanted
    assert made.results["prefix_ids"] == ([1] if prefix == "bos" else [])


def test_batches_and_order_of_documents_change_nothing(llama, tmp_path):
    lengths = (20, 3, 48, 1, 0, 7, 30)
    corpus = random_corpus(tmp_path / "corpus", lengths)
    pieces = [corpus.ids(*span) for span in pairwise(corpus.document_bounds_N1)]
    turned = write_corpus(tmp_path / "turned", pieces[::-1], vocab_size=V)
    found = []
    for number, (which, batch_tokens) in enumerate(
        [(corpus, 4096), (corpus, 1), (corpus, 50), (corpus, 100), (turned, 4096)]
    ):
        config = EvaluateConfig(policy="document", context_len=48, batch_tokens=batch_tokens)
        found.append(evaluate(llama, which, tmp_path / str(number), config=config))
    assert {made.results["n_scored"] for made in found} == {20 + 3 + 48 + 7 + 30 - 5}
    for made in found:
        assert made.results["loss_sum"] == pytest.approx(found[0].results["loss_sum"], rel=1e-6)
    assert [made.config for made in found] == [found[0].config] * 5
    by_document = np.split(losses_in(found[4]), turned.document_bounds_N1[1:-1])[::-1]
    np.testing.assert_allclose(np.concatenate(by_document), losses_in(found[0]), rtol=0, atol=EXACT)


@pytest.mark.parametrize("policy", ["packed", "document"])
def test_a_window_is_a_shorter_context(llama, policy, tmp_path):
    corpus = random_corpus(tmp_path / "corpus", (40, 9, 23))
    cut, short = (
        evaluate(llama, corpus, tmp_path / name, config=EvaluateConfig(policy=policy, **lengths))
        for name, lengths in (("cut", {"context_len": 24, "window": 8}), ("short", {"context_len": 8}))
    )
    assert [path.read_bytes() for path in cut.files("losses-")] == [
        path.read_bytes() for path in short.files("losses-")
    ]
    assert (cut.config["context_len"], cut.config["window"]) == (24, 8)


def test_what_is_stored(llama, tmp_path):
    corpus = random_corpus(tmp_path / "corpus", (40, 9, 23))
    renamed = dataclasses.replace(llama, name="other name")
    config = EvaluateConfig(context_len=8, shard_tokens=20, batch_tokens=7, device="cpu")
    made = evaluate(renamed, corpus, tmp_path / "losses", config=config)
    # A shard takes the contexts that start in it: 0 8 16 | 24 32 | 40 48 56 | 64.
    rows = [pq.ParquetFile(path).metadata.num_rows for path in made.files("losses-")]
    assert rows == [24, 16, 24, 8]
    column = pq.ParquetFile(made.files("losses-")[0]).metadata.row_group(0).column(0)
    assert (column.physical_type, column.compression) == ("FLOAT", "ZSTD")
    assert "BYTE_STREAM_SPLIT" in column.encodings
    assert column.statistics.null_count == 3
    assert made.config == {
        "policy": "packed",
        "context_len": 8,
        "window": None,
        "dtype": "float32",
        "prefix": "none",
        "shard_tokens": 20,
        "model": "other name",
        "revision": None,
    }
    fingerprints = {"corpus": corpus.fingerprint, "checkpoint": llama.fingerprint, "tokenizer": None}
    assert made.inputs == fingerprints
    results = dict(made.results)
    assert results.pop("loss_sum") == pytest.approx(float(np.nansum(losses_in(made).astype(np.float64))))
    assert results.pop("perplexity") == pytest.approx(math.exp(made.results["loss_sum"] / 63))
    assert results == {
        "n_tokens": 72,
        "n_scored": 63,
        "tokens_sha256": tokens_sha256(corpus),
        "head": "tiled",
        "model_class": "LlamaForCausalLM",
        "n_parameters": llama.model.num_parameters(),
        "vocab_size": V,
        "prefix_ids": [],
    }


def test_a_finished_result_is_opened_without_loading_weights(monkeypatch, tmp_path):
    models.random_model("llama").save_pretrained(tmp_path / "model")
    corpus, out = random_corpus(tmp_path / "corpus", (30,)), tmp_path / "losses"
    config = EvaluateConfig(context_len=8)
    made = evaluate(tmp_path / "model", corpus, out, config=config)
    monkeypatch.setattr(checkpoint_module, "load_files", lambda *_, **__: pytest.fail("weights were loaded"))
    again = dataclasses.replace(config, batch_tokens=1, device="cpu")
    assert evaluate(str(tmp_path / "model"), corpus, out, config=again) == made
    with pytest.raises(ArtifactError, match=r"context_len is 8 there, 9 now"):
        evaluate(tmp_path / "model", corpus, out, config=EvaluateConfig(context_len=9))


def test_overwrite_replaces_it(llama, tmp_path):
    corpus, out = random_corpus(tmp_path / "corpus", (30,)), tmp_path / "losses"
    evaluate(llama, corpus, out, config=EvaluateConfig(context_len=8))
    with pytest.raises(ArtifactError, match="--overwrite"):
        evaluate(llama, corpus, out, config=EvaluateConfig(context_len=5))
    made = evaluate(llama, corpus, out, config=EvaluateConfig(context_len=5), overwrite=True)
    assert np.isnan(losses_in(made)).sum() == 6


def test_killed_and_continued_is_byte_identical(tmp_path):
    models.random_model("llama").save_pretrained(tmp_path / "model")
    random_corpus(tmp_path / "corpus", (17,) * 60)
    config = EvaluateConfig(policy="document", context_len=10, shard_tokens=20, batch_tokens=64, device="cpu")

    out, partial = tmp_path / "killed", staging_path(tmp_path / "killed")
    code = (
        "import sys, models; from recallgap.corpus import open_corpus; from recallgap.evaluate import *;"
        "evaluate(sys.argv[1], open_corpus(sys.argv[2]), sys.argv[3], config=EvaluateConfig("
        "policy='document', context_len=10, shard_tokens=20, batch_tokens=64, device='cpu'))"
    )
    names = [str(tmp_path / name) for name in ("model", "corpus", "killed")]
    child = subprocess.Popen(
        [sys.executable, "-c", code, *names], cwd=Path(__file__).parent, stderr=subprocess.DEVNULL
    )
    while len(list(partial.glob("*.parquet"))) < 3:
        assert child.poll() is None, "it ended before it could be killed"
        time.sleep(0.001)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    assert not out.exists()
    finished = {path.name: path.stat().st_mtime_ns for path in partial.glob("*.parquet")}
    with pytest.raises(ArtifactError, match="unfinished"):
        open_artifact(out, "losses")

    made = evaluate(tmp_path / "model", open_corpus(tmp_path / "corpus"), out, config=config)
    whole = evaluate(tmp_path / "model", open_corpus(tmp_path / "corpus"), tmp_path / "whole", config=config)
    assert 3 <= len(finished) < len(made.files("losses-")) == 51
    assert {name: (out / name).stat().st_mtime_ns for name in finished} == finished
    assert sorted(path.name for path in out.iterdir()) == sorted(p.name for p in whole.path.iterdir())
    for path in whole.path.iterdir():
        if path.name != "run.json":
            assert path.read_bytes() == (out / path.name).read_bytes(), path.name
