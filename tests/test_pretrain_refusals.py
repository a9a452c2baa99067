"""What a pretraining refuses, warns of, or survives: each once, with what a user reads."""

import errno

import numpy as np
import pytest
import torch

from recallgap.artifact import staging_path
from recallgap.corpus import write_corpus
from recallgap.errors import ArtifactError, ConfigError, CorpusError, CountsError, TrainingError
from recallgap.pretrain import RunOptions, pretrain
from recallgap.pretrain import trainer as trainer_module
from recallgap.pretrain.checks import shared_documents
from recallgap.pretrain.recall import make_labels
from recallgap.recall import LabelConfig
from tests.pretrain_cases import CPU, T, V, config, corpora, corpus, model_config, run
from tests.test_pretrain_run import Killed, contents, kill_at


def killed(folder, monkeypatch, step=5, **settings):
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_at(patch, step)
        run(folder, **settings)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"learning_rate": 1e-3}, r"config.learning_rate is 0.003 there, 0.001 now"),
        ({"data_seed": 7}, r"config.data_seed is 0 there, 7 now"),
        ({"tokens": 4096}, r"config.tokens is 1536 there, 4096 now"),
        ({"model": model_config(["rwkv"])}, r"config.model.layers"),
    ],
)
def test_a_changed_recipe_or_order_is_not_continued(tmp_path, monkeypatch, change, message):
    killed(tmp_path, monkeypatch)
    with pytest.raises(ArtifactError, match=message):
        run(tmp_path, **change)


def test_a_changed_corpus_is_not_continued(tmp_path, monkeypatch):
    killed(tmp_path, monkeypatch)
    other = corpus(tmp_path / "other", seed=5)
    with pytest.raises(ArtifactError, match=r"inputs.corpus is .* there, .* now"):
        pretrain(model_config(), other, corpora(tmp_path)[1], tmp_path / "out", config=config(), options=CPU)
    assert any(staging_path(tmp_path / "out").glob("scratch/checkpoint-*"))


def test_overwrite_starts_anew(tmp_path, monkeypatch):
    killed(tmp_path, monkeypatch, learning_rate=1e-2)
    run(tmp_path, overwrite=True)
    run(tmp_path, "whole")
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_an_output_that_another_run_writes_is_refused(tmp_path, monkeypatch):
    def second_run(self, *args, **kwargs):
        with pytest.raises(ArtifactError, match="another process is writing it now"):
            run(tmp_path)
        raise Killed

    monkeypatch.setattr(trainer_module.Pretrainer, "training_step", second_run)
    with pytest.raises(Killed):
        run(tmp_path)


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path, monkeypatch):
    original = trainer_module.Pretrainer.compute_loss

    def compute_loss(self, *args, **kwargs):
        loss = original(self, *args, **kwargs)
        return loss * float("nan") if self.state.global_step == 6 else loss

    monkeypatch.setattr(trainer_module.Pretrainer, "compute_loss", compute_loss)
    with pytest.raises(TrainingError) as told:
        run(tmp_path)
    message = str(told.value)
    assert message.startswith("pretraining, step 7 of 12: the loss is nan. Its batch holds documents ")
    assert "checkpoint-6; the same command would come to this step again" in message
    train, _ = corpora(tmp_path)
    from recallgap.pretrain.order import DataOrder, documents_of

    contexts = DataOrder(train.n_tokens // T, 0).contexts(6 * 8, 7 * 8)
    named = message.partition("documents ")[2].partition(" of ")[0].partition(" and ")[0]
    assert [int(d) for d in named.split(", ")] == documents_of(train, contexts, T)[:20]


@pytest.mark.parametrize("breaks", ["optimizer", "rename"])
def test_a_full_disk_loses_the_current_checkpoint_alone(tmp_path, monkeypatch, breaks):
    full = OSError(errno.ENOSPC, "No space left on device")

    def fail_at_eight(original):
        def write(self, *args, **kwargs):
            if self.state.global_step == 8:
                raise full
            return original(self, *args, **kwargs)

        return write

    where = {"optimizer": "_save_optimizer_and_scheduler", "rename": "_save_rng_state"}[breaks]
    with monkeypatch.context() as patch:
        original = getattr(trainer_module.Trainer, where)
        patch.setattr(trainer_module.Pretrainer, where, fail_at_eight(original), raising=False)
        with pytest.raises(
            ArtifactError,
            match=r"checkpoint-8 could not be written, the disk is full .*checkpoint-7: free some",
        ):
            run(tmp_path)
    scratch = staging_path(tmp_path / "out") / "scratch"
    assert sorted(p.name for p in scratch.glob("checkpoint-*")) == ["checkpoint-6", "checkpoint-7"]
    assert not list(scratch.glob("half/*"))
    run(tmp_path)
    run(tmp_path, "whole")
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_a_really_full_disk(tmp_path, disk):
    """Room for a checkpoint or two and a half: torch's own error does not speak of the disk."""
    with pytest.raises(ArtifactError, match="the disk is full"):
        run(tmp_path, disk / "out", model=model_config(d_model=16))
    scratch = staging_path(disk / "out") / "scratch"
    kept = sorted(path.name for path in scratch.glob("checkpoint-*"))
    assert kept in (["checkpoint-1"], ["checkpoint-1", "checkpoint-2"])
    assert not (scratch / "half").exists()


def test_another_error_while_saving_is_not_taken_for_a_full_disk(tmp_path, monkeypatch):
    def broken(self, output_dir):
        raise RuntimeError("no such luck")

    monkeypatch.setattr(trainer_module.Pretrainer, "_save_rng_state", broken)
    with pytest.raises(RuntimeError, match="no such luck"):
        run(tmp_path)


def test_a_vocabulary_that_does_not_fit(tmp_path, capsys):
    with pytest.raises(
        ConfigError, match=r"has 31 entries, but the recipe's model has 30: --set vocab_size=31"
    ):
        run(tmp_path, model=model_config(vocab_size=30))
    run(tmp_path, model=model_config(vocab_size=40), tokens=8 * T)
    assert "its vocabulary has 31 entries, the model 40: the rest is never seen" in capsys.readouterr().err


def test_a_corpus_shorter_than_one_context(tmp_path):
    train = write_corpus(tmp_path / "train", [np.arange(5)], vocab_size=V, separator_id=0)
    evaluation = corpus(tmp_path / "valid")
    with pytest.raises(CorpusError, match="it has 5 tokens, fewer than one context of 16"):
        pretrain(model_config(), train, evaluation, tmp_path / "out", config=config(), options=CPU)


def test_corpora_of_two_tokenizers(tmp_path):
    train = corpus(tmp_path / "train")
    evaluation = corpus(tmp_path / "valid", vocab_size=V + 1)
    with pytest.raises(CountsError, match="vocabulary of 31 entries"):
        pretrain(model_config(), train, evaluation, tmp_path / "out", config=config(), options=CPU)


def test_an_evaluation_corpus_of_less_than_one_context(tmp_path):
    train = corpus(tmp_path / "train")
    short = write_corpus(tmp_path / "short", [np.arange(5)], vocab_size=V, separator_id=0)
    with pytest.raises(ConfigError, match="5 tokens do not fill one context of 16"):
        pretrain(model_config(), train, short, tmp_path / "out", config=config(), options=CPU)


def test_corpora_built_with_and_without_a_separator(tmp_path, capsys):
    train = write_corpus(tmp_path / "train", [np.arange(1, 31)] * 20, vocab_size=V)
    settings = config(tokens=8 * T)
    pretrain(model_config(), train, corpora(tmp_path)[1], tmp_path / "out", config=settings, options=CPU)
    assert f"warning: documents of {tmp_path / 'train'} end without a separator" in capsys.readouterr().err


def test_an_output_that_cannot_be_is_refused_before_anything_is_counted(tmp_path):
    train, evaluation = corpora(tmp_path)
    for out, message in (
        (train.path, "what is there is corpus, so it is not replaced"),
        (train.path / "inside", "it lies inside .*, which is a corpus"),
    ):
        with pytest.raises(ArtifactError, match=message):
            pretrain(model_config(), train, evaluation, out, config=config(), options=CPU)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["train", "valid"]


def test_an_evaluation_that_is_not_finite_stops_the_run(tmp_path, monkeypatch):
    """The last step may blow up without a training loss after it."""
    original = trainer_module.Pretrainer._get_grad_norm

    def blow_up(self, model, grad_norm=None):
        if self.state.global_step == 11:
            torch.nn.init.constant_(self.model.head.weight, float("nan"))
        return original(self, model, grad_norm)

    monkeypatch.setattr(trainer_module.Pretrainer, "_get_grad_norm", blow_up)
    with pytest.raises(TrainingError, match="evaluation after step 12 of 12: the loss is not finite"):
        run(tmp_path)
    assert not (tmp_path / "out").exists()


def test_a_damaged_checkpoint_is_passed_over(tmp_path, monkeypatch, capsys):
    killed(tmp_path, monkeypatch, step=7)
    scratch = staging_path(tmp_path / "out") / "scratch"
    weights = scratch / "checkpoint-7" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    run(tmp_path)
    run(tmp_path, "whole")
    assert "checkpoint-7 cannot be read; going back to the one before" in capsys.readouterr().err
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_labels_counted_on_another_text_are_told(tmp_path, capsys):
    train, evaluation = corpora(tmp_path)
    other = corpus(tmp_path / "other", n_documents=10, seed=4)
    labels = make_labels(other, evaluation, tmp_path / "recall", config=LabelConfig(context_len=T))
    settings = config(tokens=8 * T)
    pretrain(model_config(), train, evaluation, tmp_path / "out", config=settings, labels=labels, options=CPU)
    assert "an AR hit is rare in another text than the one trained on" in capsys.readouterr().err


def test_epochs_and_leftovers_are_said_aloud(tmp_path, capsys):
    run(tmp_path, tokens=12 * 8 * T + 3)
    told = capsys.readouterr().err
    assert "fill no context and are left out" in told
    assert "1,539 tokens were asked for; whole steps of 128 make 1,536" in told
    assert "epochs, so the model sees text again" in told


def test_shared_documents_are_counted_and_warned_of(tmp_path, capsys):
    documents = [np.array([*range(1, 9), 0]), np.array([3, 3, 3, 3, 4, 4, 5, 6, 0]), np.arange(20)]
    train = write_corpus(tmp_path / "train", 5 * documents, vocab_size=V, separator_id=0)
    other = np.array([7, 7, 7, 7, 7, 7, 7, 1, 0])
    evaluation = write_corpus(
        tmp_path / "valid", [documents[0], other, documents[1], other], vocab_size=V, separator_id=0
    )
    literal = [
        i
        for i in range(4)
        if any(np.array_equal([documents[0], other, documents[1], other][i], d) for d in documents)
    ]
    assert shared_documents(train, evaluation) == (len(literal), 18)
    made = pretrain(
        model_config(), train, evaluation, tmp_path / "out", config=config(tokens=8 * T), options=CPU
    )
    assert made.results["shared_documents"] == 2
    assert "warning: 2 of the 4 documents of" in capsys.readouterr().err


def test_a_batch_that_does_not_divide(tmp_path):
    with pytest.raises(ConfigError, match="does not divide over 1 process"):
        run(tmp_path, options=RunOptions(device="cpu", device_batch_size=3))
    with pytest.raises(ConfigError, match="device_batch_size is 0"):
        RunOptions(device_batch_size=0)
    for minutes in (-1.0, float("nan")):
        with pytest.raises(ConfigError, match="save_minutes is"):
            RunOptions(save_minutes=minutes)
    with pytest.raises(ConfigError, match="start it with torchrun"):
        RunOptions(fsdp=True)


def test_a_device_and_loggers_that_are_not_there(tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match=r"unknown logger 'tensorbord'. Did you mean 'tensorboard'"):
        RunOptions(loggers=("tensorbord",))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="logging to Weights & Biases needs the package wandb: pip install"):
        RunOptions(loggers=("wandb",))
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(ConfigError, match="this torch finds no GPU"):
        run(tmp_path, options=RunOptions(device="cuda"))
