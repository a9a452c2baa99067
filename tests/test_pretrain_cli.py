"""`recallgap pretrain` and `recallgap sweep` as a user meets them."""

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from recallgap.cli.main import ALLOCATOR, app
from recallgap.corpus import BuildConfig, build_corpus
from recallgap.errors import ConfigError, RecallGapError
from recallgap.pretrain.config import config_types, described_settings
from recallgap.pretrain.sweep import grid
from tests.conftest import SAMPLE
from tests.pretrain_cases import model_config

SMALL = ["context_len=16", "batch_size=4", "tokens=512", "evaluations=2", "precision=fp32"]


@pytest.fixture
def folder(tmp_path, tokenizer_file):
    """Corpora `train` and `valid` of text, and a recipe of our own, config.json."""
    for name, text in (("train", SAMPLE * 4), ("valid", SAMPLE[100:] + " a lazy fox")):
        (tmp_path / f"{name}.txt").write_text(text)
        build_corpus(
            [tmp_path / f"{name}.txt"], tmp_path / name, config=BuildConfig(tokenizer=str(tokenizer_file))
        )
    model_config(vocab_size=300).save_pretrained(tmp_path / "recipe")
    return tmp_path


def command(folder, verb, *arguments, settings=SMALL, recipe=None):
    """The arguments of a verb on the corpora of `folder`."""
    chosen = [part for setting in settings for part in ("--set", setting)]
    corpora = ["--corpus", str(folder / "train"), "--eval-corpus", str(folder / "valid")]
    out = ["-o", str(folder / "out"), "--device", "cpu", "--device-batch-size", "4"]
    return [verb, recipe or str(folder / "recipe"), *corpora, *out, *chosen, *arguments]


def invoke(*arguments):
    return CliRunner().invoke(app, list(arguments), catch_exceptions=False)


def test_pretrain_prints_one_line_and_its_checkpoint_is_evaluated_like_any_other(folder):
    done = invoke(*command(folder, "pretrain"))
    assert done.exit_code == 0
    assert done.stdout.startswith(f"checkpoint {folder / 'out'}: ")
    assert "512 tokens" in done.stdout and "perplexity: all " in done.stdout
    assert done.stdout.count("\n") == 1
    found = json.loads(invoke(*command(folder, "pretrain", "--json")).stdout)
    assert found["tokens"] == 512
    assert {"all", "other"} <= found["perplexity"].keys()
    evaluated = invoke(
        "evaluate", str(folder / "out"), str(folder / "valid"), "-o", str(folder / "losses"),
        "--context-len", "16", "--device", "cpu",
    )  # fmt: skip
    assert evaluated.exit_code == 0
    assert invoke("info", str(folder / "out"), "--check").exit_code == 0
    reported = invoke("report", str(folder / "out"), "-o", str(folder / "report"))
    assert reported.exit_code == 0
    assert (folder / "report" / "recall-curve.png").exists()


def test_dry_run_says_what_it_would_take_and_writes_nothing(folder):
    done = invoke(*command(folder, "pretrain", "--dry-run"))
    assert not (folder / "out").exists()
    for part in ("parameters", "512 tokens in 8 steps of 64", "tokens/s", "memory: ", "step 1: contexts "):
        assert part in done.stdout
    found = json.loads(invoke(*command(folder, "pretrain", "--dry-run", "--json")).stdout)
    assert found["steps"] == 8
    assert len(found["first_batches"]) == 3
    assert found["seconds"] == pytest.approx(8 * found["seconds_per_step"])
    assert found["peak_bytes"] > found["optimizer_bytes"] == 16 * found["n_parameters"]


def test_sweep_prints_best_and_spread_and_trains_each_point_once(folder, monkeypatch):
    settings = [*SMALL, "learning_rate=1e-4,1e-2", "seed=0,1"]
    done = invoke(*command(folder, "sweep", settings=settings))
    assert done.exit_code == 0
    assert "best: learning_rate=1e-2,seed=" in done.stdout
    runs = sorted(p.name for p in (folder / "out").iterdir() if p.name.startswith("learning_rate"))
    assert len(runs) == 4
    monkeypatch.setattr("recallgap.pretrain.trainer.Pretrainer.train", None)
    table = json.loads(invoke(*command(folder, "sweep", "--json", settings=settings)).stdout)
    assert table == json.loads((folder / "out" / "sweep.json").read_text())
    for entry in table["by_setting"]:
        losses = [r["losses"]["all"] for r in table["rows"] if entry["setting"] in r["run"].split(",")]
        assert len(losses) == entry["runs"] == 2
        assert (entry["best"], entry["worst"]) == (min(losses), max(losses))
        assert entry["mean"] == pytest.approx(sum(losses) / 2)


def test_a_run_that_diverges_is_a_row_of_the_sweep(folder):
    done = invoke(*command(folder, "sweep", settings=[*SMALL, "learning_rate=1e-3,1e38", "clip=0"]))
    assert "learning_rate=1e38" in done.stdout
    assert "the loss was not finite" in done.stdout
    assert "best: learning_rate=1e-3" in done.stdout


def test_another_sweep_does_not_replace_the_table_of_the_first(folder):
    settings = [*SMALL, "learning_rate=1e-4,1e-2"]
    assert invoke(*command(folder, "sweep", settings=settings)).exit_code == 0
    for changed, message in (
        ([*SMALL, "learning_rate=1e-4,1e-3"], "a sweep of .*learning_rate=1e-4,1e-2 is there"),
        ([*SMALL, "learning_rate=1e-3,0.001"], "is there"),
    ):
        with pytest.raises(RecallGapError, match=message):
            invoke(*command(folder, "sweep", settings=changed))
    with pytest.raises(
        RecallGapError, match=r"learning_rate=1e-3 and learning_rate=0.001 of the sweep are the"
    ):
        same = command(folder, "sweep", settings=[*SMALL, "learning_rate=1e-3,0.001"])
        invoke(*[str(folder / "new") if part == str(folder / "out") else part for part in same])


def test_labels_with_a_threshold_of_their_own(folder):
    invoke(*command(folder, "pretrain"))
    labels = next(folder.glob("recall-*/labels-*"))
    with pytest.raises(RecallGapError, match="leave --max-train-count away, or --labels"):
        invoke(*command(folder, "pretrain", "--labels", str(labels), "--max-train-count", "3"))


@pytest.mark.parametrize("verb", ["pretrain", "sweep"])
def test_thresholds_reach_the_labels(folder, verb):
    settings = [*SMALL, "learning_rate=1e-4,1e-2"] if verb == "sweep" else SMALL
    invoke(*command(folder, verb, "--rate-per-million", "2.5", settings=settings))
    (labels,) = folder.glob("recall-*/labels-*" if verb == "pretrain" else "out/recall-*/labels-*")
    assert json.loads((labels / "meta.json").read_text())["config"]["rate_per_million"] == 2.5


def test_grids():
    points = grid(["a=1,2", "b=x", "c=3,4"])
    assert [name for name, _ in points] == ["a=1,c=3", "a=1,c=4", "a=2,c=3", "a=2,c=4"]
    assert points[1][1] == ["a=1", "b=x", "c=4"]
    for settings, message in (
        (["a=1"], "a sweep varies a setting"),
        (["a=1,1"], "must all be there and differ"),
    ):
        with pytest.raises(ConfigError, match=message):
            grid(settings)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"recipe": "attention-3"}, "unknown recipe 'attention-3'"),
        ({"settings": [*SMALL, "learningrate=1"]}, "Did you mean 'learning_rate'"),
        ({"recipe": "attention-3m"}, None),
    ],
)
def test_mistakes(folder, changes, message):
    if message is None:  # a recipe with a larger vocabulary trains, and says so
        done = CliRunner().invoke(app, command(folder, "pretrain", "--dry-run", **changes))
        assert done.exit_code == 0
        assert "entries, the model 4,096: the rest is never seen" in done.stderr
        return
    with pytest.raises(RecallGapError, match=message):
        invoke(*command(folder, "pretrain", **changes))


def test_a_mistake_exits_with_2_and_the_allocator_is_set_before_python_starts(folder):
    code = (
        "import os, sys; from recallgap.cli import main; "
        "main.app = lambda: print({name: os.environ.get(name) for name in main.ALLOCATOR}); main.main()"
    )
    environment = {"PATH": "/usr/bin:/bin"}
    for verb, expected in (("pretrain", ALLOCATOR), ("list", dict.fromkeys(ALLOCATOR))):
        done = subprocess.run(
            [sys.executable, "-c", code, verb], capture_output=True, text=True, check=True, env=environment
        )
        assert done.stdout.strip() == str(expected)
    wrong = command(folder, "pretrain", settings=["tokens=none_at_all"])
    done = subprocess.run(
        [sys.executable, "-m", "recallgap.cli.main", *wrong], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr == "recallgap: --set tokens=none_at_all: a whole number is needed\n"


def test_every_setting_is_listed_with_its_text():
    assert described_settings().keys() == config_types().keys()
    assert described_settings()["clip"] == "1.0; Largest norm of the gradient; 0: no clipping."
    assert "learning_rate" in invoke("list", "settings").stdout
