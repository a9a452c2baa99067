"""recallgap ar: text in, table and report out; a second run makes nothing again."""

import json
import shutil

import pytest
import torch
import transformers
from models import LLAMA
from typer.testing import CliRunner

from recallgap.artifact import open_artifact
from recallgap.cli.main import app
from recallgap.errors import ConfigError
from recallgap.evaluate import files as evaluate_files
from recallgap.pipeline import Run, ar_perplexity, runs_of
from recallgap.recall import LabelConfig

TEXT = "the quick brown fox jumps over the lazy dog, and the dog jumps over the fox again. "


@pytest.fixture
def setting(tmp_path, tokenizer_file):
    """Two tiny checkpoints with their tokenizer, an evaluation text and a training text."""
    for seed, name in enumerate(("base", "other")):
        torch.manual_seed(seed)
        config = transformers.LlamaConfig(**{**LLAMA, "vocab_size": 300, "eos_token_id": 0})
        transformers.LlamaForCausalLM(config).save_pretrained(tmp_path / name)
        shutil.copy(tokenizer_file, tmp_path / name / "tokenizer.json")
    lines = [json.dumps({"text": TEXT[i:] + TEXT[:i]}) for i in range(0, 60, 10)]
    (tmp_path / "eval.jsonl").write_text("\n".join(lines))
    (tmp_path / "train.txt").write_text(TEXT * 3)
    return tmp_path


def command(folder, *options):
    checkpoints = [str(folder / name) for name in ("base", "other")]
    texts = ["--corpus", str(folder / "eval.jsonl"), "--train-corpus", str(folder / "train.txt")]
    fixed = ["--separator", "<|endoftext|>", "--context-len", "32", "--out", str(folder / "out")]
    return ["ar", *checkpoints, *texts, *fixed, *options]


def test_text_in_report_out_and_nothing_twice(setting, monkeypatch):
    first = CliRunner().invoke(app, command(setting), catch_exceptions=False)
    assert first.exit_code == 0
    assert "base" in first.stdout and "other" in first.stdout and "AR hits" in first.stdout
    kinds = {"corpus": "corpus", "train-corpus": "corpus", "counts": "counts", "labels": "labels"}
    kinds |= {"losses-base": "losses", "losses-other": "losses", "gap": "gap", "report": "report"}
    before = {}
    for folder, kind in kinds.items():
        open_artifact(setting / "out" / folder, kind, check_content=True)
        before[folder] = (setting / "out" / folder / "run.json").stat().st_mtime_ns

    def fail(*args, **kwargs):
        raise AssertionError("weights are loaded again")

    monkeypatch.setattr(evaluate_files.CheckpointFiles, "load", fail)
    second = CliRunner().invoke(app, command(setting), catch_exceptions=False)
    assert second.stdout == first.stdout
    assert before == {name: (setting / "out" / name / "run.json").stat().st_mtime_ns for name in kinds}


def test_json_has_raw_numbers(setting):
    result = CliRunner().invoke(app, command(setting, "--json"), catch_exceptions=False)
    table = json.loads(result.stdout)["table"]
    assert [row["model"] for row in table] == ["base", "other"]


def test_another_threshold_is_refused_in_the_same_folder(setting):
    CliRunner().invoke(app, command(setting), catch_exceptions=False)
    result = CliRunner().invoke(app, command(setting, "--max-train-count", "1"))
    assert "max_train_count" in str(result.exception)


def test_a_missing_checkpoint_is_told_before_any_work(setting):
    missing = [word if not word.endswith("other") else word + "-missing" for word in command(setting)]
    result = CliRunner().invoke(app, missing)
    assert "there is no such" in str(result.exception)
    assert not (setting / "out").exists()


def test_checkpoints_of_two_tokenizers_are_told_before_any_work(setting):
    tokenizer = json.loads((setting / "other" / "tokenizer.json").read_text())
    tokenizer["model"]["merges"].pop()
    (setting / "other" / "tokenizer.json").write_text(json.dumps(tokenizer))
    result = CliRunner().invoke(app, command(setting))
    assert "their tokenizers differ" in str(result.exception)
    assert not (setting / "out").exists()


def test_one_checkpoint_has_perplexities_and_no_gap(setting):
    texts = {"corpus": setting / "eval.jsonl", "train_corpus": setting / "train.txt"}
    contexts = LabelConfig(context_len=32)
    gap = ar_perplexity([setting / "base"], out=setting / "out", labels=contexts, **texts)
    assert [row["gap"] for row in gap.table()] == [None]


def test_names_must_differ_and_counts_must_come_from_somewhere(tmp_path):
    assert [run.name for run in runs_of(["a/m", "b/m", "n"])] == ["a/m", "b/m", "n"]
    with pytest.raises(ConfigError, match="two checkpoints are called 'a/m'"):
        runs_of(["x/a/m", "y/a/m"])
    with pytest.raises(ConfigError, match="give either a training corpus or a counts artifact"):
        ar_perplexity([Run(checkpoint="m", name="m")], corpus="c", out=tmp_path)
