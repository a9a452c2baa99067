"""A model, a corpus and a config that do not fit each other are refused, with what and where."""

import dataclasses
import math

import models
import pytest
from models import V, random_corpus

from recallgap.artifact import staging_path
from recallgap.corpus import write_corpus
from recallgap.errors import CheckpointError, ConfigError
from recallgap.evaluate import Checkpoint, EvaluateConfig, evaluate


@pytest.fixture(scope="module")
def llama():
    return Checkpoint.of(models.random_model("llama"), name="llama")


def test_an_id_beyond_the_vocabulary_is_refused_before_the_first_forward(llama, tmp_path):
    documents = [[1, 2], [], [3, V - 1, V, V + 1]]
    corpus = write_corpus(tmp_path / "corpus", documents, vocab_size=V + 2)
    message = rf"token 2 of document 2 \(token 4 of the stream\) has id {V}, but the model has {V} ids"
    with pytest.raises(CheckpointError, match=message):
        evaluate(llama, corpus, tmp_path / "losses")
    assert not (tmp_path / "losses").exists() and not staging_path(tmp_path / "losses").exists()
    by_one = write_corpus(tmp_path / "by-one", [[1, V]], vocab_size=V + 2)
    with pytest.raises(CheckpointError, match="token 1 of document 0"):
        evaluate(llama, by_one, tmp_path / "losses")
    fits = write_corpus(tmp_path / "fits", [[1, 2], [3, V - 1]], vocab_size=V + 2)
    assert evaluate(llama, fits, tmp_path / "losses").results["n_scored"] == 3


@pytest.mark.parametrize("value", [math.nan, -math.inf])
def test_a_loss_that_is_no_number_names_its_place(value, tmp_path):
    model = models.successor_model()
    model.table.weight.data[7] = value
    corpus = write_corpus(tmp_path / "corpus", [[1, 2, 3], [4, 5, 7, 6, 1]], vocab_size=V)
    config = EvaluateConfig(policy="document", context_len=8)
    with pytest.raises(CheckpointError, match=r"token 3 of document 1 \(token 6 of the stream\) is nan"):
        evaluate(Checkpoint.of(model, name="m"), corpus, tmp_path / "losses", config=config)
    assert not (tmp_path / "losses").exists()


@pytest.mark.parametrize("family", ["llama", "mamba"])
def test_weights_that_are_no_numbers(family, tmp_path):
    model = models.random_model(family)
    model.get_input_embeddings().weight.data[7] = math.nan
    corpus = write_corpus(tmp_path / "corpus", [[1, 2, 3], [4, 5, 7, 6, 1]], vocab_size=V)
    config = EvaluateConfig(policy="document", context_len=8)
    with pytest.raises(CheckpointError, match=r"of document 1 .* is nan\. The weights hold nan or inf"):
        evaluate(Checkpoint.of(model, name="m"), corpus, tmp_path / "losses", config=config)


def test_a_window_longer_than_the_model_allows(llama, tmp_path):
    assert llama.max_len == models.POSITIONS
    corpus = random_corpus(tmp_path / "corpus", (100,))
    with pytest.raises(CheckpointError, match=r"longest window has 64 tokens.*at most 48"):
        evaluate(llama, corpus, tmp_path / "losses", config=EvaluateConfig(context_len=64))
    config = EvaluateConfig(context_len=64, window=48, prefix="bos")
    assert evaluate(llama, corpus, tmp_path / "losses", config=config).results["n_scored"] == 100


def test_a_prefix_that_the_model_has_not(llama, tmp_path):
    corpus = random_corpus(tmp_path / "corpus", (9,))
    for bos_id in (None, V):
        without = dataclasses.replace(llama, bos_id=bos_id)
        with pytest.raises(ConfigError, match="as its bos id"):
            evaluate(without, corpus, tmp_path / "losses", config=EvaluateConfig(prefix="bos"))


def test_a_loaded_checkpoint_is_not_converted(llama, tmp_path):
    corpus = random_corpus(tmp_path / "corpus", (9,))
    with pytest.raises(ConfigError, match="dtype is 'bfloat16', but llama is loaded as float32"):
        evaluate(llama, corpus, tmp_path / "losses", config=EvaluateConfig(dtype="bfloat16"))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"policy": "pakced"}, "Did you mean 'packed'"),
        ({"context_len": 1}, "at least 2"),
        ({"window": 1}, "must be >= 2"),
        ({"window": 0, "prefix": "bos"}, "must be >= 1"),
        ({"dtype": "float8"}, "unknown dtype"),
        ({"prefix": "pad"}, "unknown prefix"),
        ({"device": "tpu"}, "unknown device"),
        ({"batch_tokens": 0}, "batch_tokens is 0"),
        ({"shard_tokens": 0}, "shard_tokens is 0"),
    ],
)
def test_a_config_refuses_nonsense(wrong, message):
    with pytest.raises(ConfigError, match=message):
        EvaluateConfig(**wrong)
