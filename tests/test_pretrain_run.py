"""A run from corpus to checkpoint: what it writes, that it resumes bitwise, and that it learns."""

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from recallgap.artifact import open_artifact, staging_path
from recallgap.evaluate import EvaluateConfig, evaluate
from recallgap.pretrain import RunOptions
from recallgap.pretrain import trainer as trainer_module
from tests.models import losses_in
from tests.pretrain_cases import CPU, T, corpora, model_config, run


class Killed(BaseException):
    """Stands for a kill."""


def kill_at(monkeypatch, step):
    """Die in the middle of the step after `step`."""
    original = trainer_module.Pretrainer.training_step

    def training_step(self, *args, **kwargs):
        if self.state.global_step == step:
            raise Killed
        return original(self, *args, **kwargs)

    monkeypatch.setattr(trainer_module.Pretrainer, "training_step", training_step)


def contents(folder):
    """{name: bytes} of what a checkpoint's fingerprint covers."""
    return {name: (folder / name).read_bytes() for name in open_artifact(folder, None).meta["files"]}


def test_a_checkpoint_is_a_hugging_face_folder_that_says_what_it_is(tmp_path):
    made = run(tmp_path)
    assert made.results["tokens"] == 12 * 8 * T
    assert made.results["steps"] == 12
    assert made.config["learning_rate"] == 3e-3
    assert made.config["max_train_count"] == 20
    assert made.config["model"]["d_model"] == 8
    assert made.inputs["corpus"] == open_artifact(tmp_path / "train", "corpus").fingerprint
    assert not staging_path(tmp_path / "out").exists()
    record = json.loads((tmp_path / "out" / "run.json").read_text())
    assert record["tokens_seen"] == 12 * 8 * T
    assert 0 < record["model_flop_utilisation"] < 1
    assert record["sittings"][0]["first_step"] == 0
    assert {"device", "git", "versions", "tokens_per_second", "options", "wall_seconds"} <= record.keys()
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert model.num_parameters() == made.results["n_parameters"]
    log = made.log()
    assert [e["step"] for e in log if e["event"] == "evaluation"] == [4, 8, 12]
    assert [e["step"] for e in log if e["event"] == "train"] == list(range(1, 13))
    assert all(e["tokens"] == e["step"] * 8 * T for e in log)


def test_the_last_evaluation_is_what_evaluate_says(tmp_path):
    made = run(tmp_path)
    _, evaluation = corpora(tmp_path)
    losses = evaluate(
        str(tmp_path / "out"),
        evaluation,
        tmp_path / "losses",
        config=EvaluateConfig(context_len=T, device="cpu"),
    )
    last = [e for e in made.log() if e["event"] == "evaluation"][-1]["slices"]["all"]
    whole = losses_in(losses)[: evaluation.n_tokens // T * T]
    assert last["n"] == np.count_nonzero(~np.isnan(whole))
    assert last["loss_sum"] == pytest.approx(np.nansum(whole.astype(np.float64)), rel=1e-6)


def test_it_learns(tmp_path):
    made = run(tmp_path, tokens=150 * 8 * T, learning_rate=1e-2, evaluations=2)
    losses = [e["loss"] for e in made.log() if e["event"] == "train"]
    assert losses[0] > 3.2
    assert losses[-1] < 2.5


@pytest.mark.parametrize("step", [1, 5, 8])
@pytest.mark.parametrize("settings", [{}, {"precision": "bf16", "seen_counts": True}], ids=["fp32", "bf16"])
def test_a_killed_run_goes_on_as_if_it_had_not_been(tmp_path, monkeypatch, step, settings):
    """Dropout on, four contexts a forward, two forwards a step; the run crosses the end of an epoch."""
    whole = run(tmp_path, "whole", **settings)
    assert whole.results["epochs"] > 1
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_at(patch, step)
        run(tmp_path, "killed", **settings)
    run(tmp_path, "killed", **settings)
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")
    assert (tmp_path / "killed" / "meta.json").read_bytes() == (tmp_path / "whole" / "meta.json").read_bytes()


def test_the_last_two_checkpoints_are_kept_while_it_runs(tmp_path, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_at(patch, 7)
        run(tmp_path)
    scratch = staging_path(tmp_path / "out") / "scratch"
    assert sorted(p.name for p in scratch.glob("checkpoint-*")) == ["checkpoint-6", "checkpoint-7"]
    shutil.rmtree(scratch / "checkpoint-7")
    run(tmp_path)
    run(tmp_path, "whole")
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_a_second_call_trains_nothing(tmp_path, monkeypatch):
    first = run(tmp_path)
    monkeypatch.setattr(trainer_module.Pretrainer, "train", None)
    assert run(tmp_path).fingerprint == first.fingerprint


def test_accumulation_gives_the_same_steps_as_one_big_batch(tmp_path):
    """With the auxiliary loss of a learned selection, whose share of a batch must be right too."""
    learned = {"mixer": "selective_attention", "selection": "learned", "n_heads": 2, "k": 4}
    model = model_config(["base_conv", learned], dropout=0.0)
    weights = []
    for size in (8, 4, 1):
        options = RunOptions(device="cpu", device_batch_size=size)
        run(tmp_path, f"by-{size}", model=model, options=options, tokens=6 * 8 * T)
        weights.append(load_file(tmp_path / f"by-{size}" / "model.safetensors"))
    for name, whole in weights[0].items():
        for parts in weights[1:]:
            torch.testing.assert_close(parts[name], whole, atol=1e-6, rtol=1e-6)


def test_the_order_does_not_depend_on_the_model(tmp_path, monkeypatch):
    seen = {}
    original = trainer_module.Pretrainer.training_step

    def training_step(self, model, inputs, num_items_in_batch=None):
        seen[self.folder.parent.name].append(inputs["input_ids"].tolist())
        return original(self, model, inputs, num_items_in_batch)

    monkeypatch.setattr(trainer_module.Pretrainer, "training_step", training_step)
    for name, layers, seed in (("a", ["rwkv"], 0), ("b", ["hyena", "h3"], 5)):
        seen[f".{name}.partial"] = []
        run(
            tmp_path,
            name,
            model=model_config(layers, d_model=16),
            tokens=5 * 8 * T,
            seed=seed,
        )
    first, second = seen.values()
    assert first == second
    assert len(first) == 5 * 2


def test_seeds_change_weights_or_order_alone(tmp_path):
    made = {
        name: run(tmp_path, name, tokens=2 * 8 * T, **settings).log()[0]["loss"]
        for name, settings in (("one", {}), ("seed", {"seed": 1}), ("order", {"data_seed": 1}))
    }
    assert len(set(made.values())) == 3


def test_options_do_not_count_when_a_run_is_continued(tmp_path, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_at(patch, 5)
        run(tmp_path)
    made = run(tmp_path, options=RunOptions(device="cpu", device_batch_size=2))
    assert made.results["steps"] == 12
    record = json.loads((tmp_path / "out" / "run.json").read_text())
    assert [s["first_step"] for s in record["sittings"]] == [0, 5]
    assert CPU.device_batch_size != record["options"]["device_batch_size"] == 2
