"""Sweeps over MQAR: running, continuing, tables and figures."""

import dataclasses
import json

import pytest
import typer
from typer.testing import CliRunner

from recallgap.artifact import staging_path
from recallgap.cli.mqar_sweep import sweep as command
from recallgap.errors import ArtifactError, ConfigError
from recallgap.mqar import sweep as sweeping
from recallgap.mqar.figures import draw
from recallgap.mqar.models import MODELS
from recallgap.mqar.presets import preset_sweep, spread
from recallgap.mqar.sweep import RunOptions, sweep
from recallgap.mqar.table import best_table, summary
from recallgap.report import aligned
from recallgap.report.drawing import save

TINY = [
    "vocab_size=16", "context_len=16", "n_pairs=2", "widths=8", "epochs=2", "epoch_sequences=32",
    "batch_sizes=16", "eval_sequences=20", "learning_rates=1e-3,1e-2",
]  # fmt: skip


def tiny(models=("attention",), settings=()):
    return preset_sweep("small", settings=[*TINY, *settings], models=models)


def cli(*arguments):
    app = typer.Typer()
    app.command()(command)
    return CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)


def tiny_cli(out, *arguments):
    chosen = [part for setting in TINY for part in ("--set", setting)]
    return cli("-o", out, "--models", "attention", "--device", "cpu", *chosen, *arguments)


def test_what_cannot_be_trained_is_refused_before_anything_runs(tmp_path):
    with pytest.raises(ConfigError, match="attention: 1 heads of a width of 9 are 9 wide, but rotary"):
        sweep(tiny(settings=["widths=8,9"]), tmp_path / "out")
    with pytest.raises(ConfigError, match="an epoch has only 32 sequences: choose smaller batches"):
        sweep(tiny(settings=["batch_sizes=33"]), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_sweep_end_to_end(tmp_path):
    plan = tiny()
    rows = sweep(plan, tmp_path / "out")
    assert [(row["model"], row["width"], row["learning_rate"]) for row in rows] == [
        ("attention", 8, 1e-3), ("attention", 8, 1e-2),
    ]  # fmt: skip
    assert all(0 <= row["accuracy"] <= 1 and row["steps"] == 4 for row in rows)
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {
        "results.json", "results.csv", "accuracy.png", "accuracy.svg", "report.md", "report.html",
        "meta.json", "attention-d8-n16-p2-lr0.001-s0.json", "attention-d8-n16-p2-lr0.01-s0.json",
    } <= names  # fmt: skip
    assert sweep(plan, tmp_path / "out") == rows
    assert "[" in (tmp_path / "out" / "report.md").read_text()


def test_an_interrupted_sweep_goes_on_and_gives_the_same(tmp_path, monkeypatch):
    plan = tiny()
    whole = sweep(plan, tmp_path / "whole")
    trained, train_one = [], sweeping._train

    def interrupted(point, *rest):
        if trained:
            raise KeyboardInterrupt
        trained.append(point.name)
        return train_one(point, *rest)

    monkeypatch.setattr(sweeping, "_train", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sweep(plan, tmp_path / "out")
    assert staging_path(tmp_path / "out").is_dir()
    again = []
    monkeypatch.setattr(sweeping, "_train", lambda p, *rest: again.append(p.name) or train_one(p, *rest))
    assert sweep(plan, tmp_path / "out") == whole
    assert sorted(trained + again) == sorted(point.name for point in plan.points)
    for name in ("meta.json", "accuracy.png", "results.csv"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_two_processes_give_what_one_gives(tmp_path):
    alone = sweep(tiny(), tmp_path / "alone", options=RunOptions(workers=1, device="cpu"))
    assert sweep(tiny(), tmp_path / "both", options=RunOptions(workers=2, device="cpu")) == alone


def test_other_settings_in_the_same_folder_are_refused_by_name(tmp_path):
    sweep(tiny(), tmp_path / "out")
    with pytest.raises(ArtifactError, match=r"config\.training\.epochs is 2 there, 3 now"):
        sweep(tiny(settings=["epochs=3"]), tmp_path / "out")
    rows = sweep(tiny(settings=["epochs=3"]), tmp_path / "out", overwrite=True)
    assert {row["epochs"] for row in rows} == {3}


def test_the_command_prints_the_table_and_as_json_every_training(tmp_path):
    done = tiny_cli(tmp_path / "out", "--workers", 1)
    assert done.exit_code == 0
    assert "d = 8" in done.stdout
    assert done.stdout.splitlines()[1].startswith("N = 16, D = 2  attention")
    assert "mqar sweep: 2 of 2 points" in done.stderr
    rows = json.loads(tiny_cli(tmp_path / "out", "--workers", 1, "--json").stdout)
    assert len(rows) == 2


@pytest.mark.parametrize("changes", [{"workers": 0}, {"threads": 0}, {"device": "gpu"}])
def test_options_that_cannot_be_are_refused(changes):
    with pytest.raises(ConfigError):
        RunOptions(**changes)


def made_up(varied="width", models=("attention", "hyena"), rates=(1e-3, 1e-2)):
    """Results as a sweep has them, accuracies by formula."""
    places = {
        "width": [{"width": width} for width in (16, 32, 64, 128)],
        "distances": [{"distances": list(spread(8, 56, n))} for n in (1, 2, 5, 13, 25)],
        "pairs": [{"n_pairs": n} for n in (2, 4, 8, 16)],
        "range": [{"distances": list(spread(8, n, 4))} for n in (14, 26, 38, 56)],
    }[varied]
    common = {"context_len": 64, "n_pairs": 4, "width": 32, "distances": None, "seed": 0, "diverged": False}
    return [
        {"model": model, "task": "n64-p4", **common, **place, "learning_rate": rate, "steps": 100}
        | {"accuracy": 1.0 if model == "attention" else min(1, 0.2 * (i + 1) + 10 * rate), "curve": [0.5]}
        for model in models
        for i, place in enumerate(places)
        for rate in rates
    ]


def test_the_best_learning_rate_counts_and_the_spread_is_shown():
    rows = made_up()
    found = {(entry["model"], entry["at"]): entry for entry in summary("width", rows)}
    hyena = found["hyena", 16]
    assert (hyena["best"], hyena["worst"], hyena["learning_rate"]) == pytest.approx((0.3, 0.21, 1e-2))
    text = aligned(best_table("width", rows)).splitlines()
    assert text[0].split()[:5] == ["Task", "Model", "d", "=", "16"]
    assert "30.0 %" in text[3]
    assert "[21.0; 0.01]" in text[4]


def test_a_diverged_training_counts_as_nothing_learned_and_is_named():
    rows = made_up()
    rows[0] |= {"accuracy": None, "diverged": True}
    entry = summary("width", rows)[0]
    assert (entry["best"], entry["worst"], entry["diverged"]) == (1.0, 0.0, 1)
    assert "1 diverged" in aligned(best_table("width", rows))


def test_several_seeds_are_averaged_before_the_best_is_taken():
    rows = [row for row in made_up() if (row["model"], row["width"]) == ("hyena", 16)]
    seeds = rows + [{**row, "seed": 1, "accuracy": 0.0} for row in rows]
    (entry,) = summary("width", seeds)
    assert entry["best"] == pytest.approx(0.15)
    assert entry["runs"] == 4


@pytest.mark.parametrize("varied", ["width", "distances", "pairs", "range"])
def test_figures_are_drawn_and_saved(varied, tmp_path):
    rows = made_up(varied, models=tuple(MODELS))
    (figure,) = draw(varied, rows).values()
    save(figure, tmp_path / "accuracy.png", "png")
    assert (tmp_path / "accuracy.png").stat().st_size > 10_000
    axes = figure.axes[0]
    assert [line.get_label() for line in axes.lines] == list(MODELS)
    hyena = axes.lines[list(MODELS).index("hyena")]
    assert list(hyena.get_ydata()) == pytest.approx(
        [min(1, 0.2 * (i + 1) + 0.1) for i in range(len(hyena.get_ydata()))]
    )


def test_a_sweep_says_what_decides_it():
    plan = tiny()
    assert plan.config["tasks"]["n16-p2"]["vocab_size"] == 16
    assert plan.config["training"]["epochs"] == 2
    changed = dataclasses.replace(plan, tasks=(dataclasses.replace(plan.tasks[0], alpha=1.0),))
    assert changed.config != plan.config
