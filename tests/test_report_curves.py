"""The report of pretraining runs: numbers against a literal reading of training.jsonl, figures, page."""

import csv
import json
import math
import tempfile
import xml.etree.ElementTree
from fractions import Fraction
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
from gap_cases import write_case
from hypothesis import given, settings
from hypothesis import strategies as st
from run_cases import BASE, SLOW, N, evaluation, finished, log_of, train, unfinished
from typer.testing import CliRunner

from recallgap.cli.main import app
from recallgap.errors import ArtifactError, ConfigError
from recallgap.report.curve_figures import FIGURES, draw
from recallgap.report.curve_page import curve_rows, curve_table, gap_rows, page_blocks, write_curves
from recallgap.report.curves import open_curves
from recallgap.report.markup import markdown
from recallgap.slices import compare


@pytest.fixture
def runs(tmp_path):
    return [finished(tmp_path, "base", BASE), unfinished(tmp_path, "slow", SLOW)]


def run(*arguments):
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result


def test_the_table_by_hand(runs):
    base, slow = curve_table(open_curves(runs)).rows
    assert base[:4] == ["base", "2.5M", "200", "17.73 (2.88)"]  # 368/128
    assert base[4:7] == ["7.39 (2.00)", "20.09 (3.00)", "148.41 (5.00)"]
    assert base[7:] == ["-", "-", "100"]
    assert slow[:4] == ["slow", "-", "200", "29.22 (3.38)"]  # 432/128
    assert slow[4:7] == ["148.41 (5.00)", "23.17 (3.14)", "54.60 (4.00)"]
    assert slow[7:] == ["+0.5000", "75.0 %", "not yet"]


def test_gaps_are_taken_at_shared_tokens_alone(runs):
    points = open_curves(runs).gaps(1)
    assert [(p.tokens, p.gap, p.contribution) for p in points] == [(100, -0.25, 0.25), (200, 0.5, 0.375)]
    assert [p.share for p in points] == [-1.0, 0.75]


# ---- the numbers against a literal reading of the logs ----


def oracle_table(logs):
    """Rows of the table from {name: lines of its log}, in exact fractions."""
    evaluations = {name: [x for x in lines if x["event"] == "evaluation"] for name, lines in logs.items()}
    common = [
        one["tokens"]
        for one in next(iter(evaluations.values()))
        if all(any(x["tokens"] == one["tokens"] for x in found) for found in evaluations.values())
    ]

    def mean(line, name):
        part = line["slices"][name]
        return Fraction(part["loss_sum"]) / part["n"]

    rows, base = [], None
    for found in evaluations.values():
        line = next(x for x in found if x["tokens"] == max(common)) if common else found[-1]
        row = [line["tokens"], *(mean(line, name) for name in ("all", "ar_hit", "other", "rare_first"))]
        gap = share = None
        if base is not None and common:
            gap = mean(line, "all") - mean(base, "all")
            due = Fraction(N["ar_hit"], N["all"]) * (mean(line, "ar_hit") - mean(base, "ar_hit"))
            share = due / gap if abs(gap) >= Fraction("0.02") else None
        base = base or line
        appears = [x["tokens"] for x in found if mean(x, "rare_first") - mean(x, "ar_hit") >= 1]
        rows.append([*row, gap, share, appears[0] if appears else None])
    return rows


SUMS = st.tuples(st.integers(0, 160), st.integers(0, 900), st.integers(0, 320))
LOGS = st.dictionaries(st.integers(0, 6), SUMS, min_size=1, max_size=5)


@settings(max_examples=60)
@given(st.lists(LOGS, min_size=1, max_size=4))
def test_the_numbers_are_the_definitions(logs):
    lines = {
        f"run{k}": [
            evaluation(10 * at, hit=hit, other=other, first=first)
            for at, (hit, other, first) in sorted(log.items())
        ]
        for k, log in enumerate(logs)
    }
    with tempfile.TemporaryDirectory() as folder:
        curves = open_curves([unfinished(Path(folder), name, log) for name, log in lines.items()])
    columns = ["tokens", "overall_loss", "ar_hit_loss", "other_loss", "rare_first_loss"]
    columns += ["gap", "ar_hit_share", "recall_appears"]
    rows = curve_rows(curves)
    for row, expected in zip(rows, oracle_table(lines), strict=True):
        wanted = [None if x is None else pytest.approx(float(x), abs=1e-12) for x in expected]
        assert [row[column] for column in columns] == wanted
        assert row["ar_hit_perplexity"] == pytest.approx(math.exp(row["ar_hit_loss"]))
    for point in gap_rows(curves):
        held = [{x["tokens"] for x in lines[name]} for name in ("run0", point["model"])]
        assert point["tokens"] in held[0] & held[1]


def test_recall_that_goes_again_has_appeared(tmp_path):
    first = evaluation(0, hit=48, other=100, first=128)
    later = evaluation(10, hit=64, other=100, first=128)
    (row,) = curve_rows(open_curves([unfinished(tmp_path, "a", [first, later])]))
    assert (row["recall_appears"], row["tokens"]) == (0, 10)


# ---- the report ----


def test_report_on_the_command_line(tmp_path, runs):
    said = run("report", *runs, "-o", tmp_path / "out")
    lines = said.stdout.splitlines()
    assert lines[0].split()[:2] == ["Model", "Parameters"] and lines[2].split()[-3:] == ["%", "not", "yet"]
    assert lines[-1].startswith(f"report {tmp_path / 'out'}: evaluations.csv, gap-curve.png")
    assert "note: slow is unfinished; its last line is at 250 tokens." in said.stderr
    assert "Some have later ones: base 300, slow 250." in said.stderr
    files = json.loads(run("report", *runs, "-o", tmp_path / "out", "--json").stdout)["files"]
    for name in ("recall-curve", "gap-curve", "loss-curve"):
        assert {f"{name}.png", f"{name}.svg"} <= set(files)
        pixels = matplotlib.image.imread(tmp_path / "out" / f"{name}.png")
        assert 0.005 < (pixels[..., :3].min(axis=-1) < 0.9).mean() < 0.6
        xml.etree.ElementTree.parse(tmp_path / "out" / f"{name}.svg")
    page = (tmp_path / "out" / "report.md").read_text()
    assert page.startswith("# slow against base during training\n")
    assert "There are no intervals here" in page and "at least 1 nat below" in page
    assert "| config: model.d_model | 8 |" in page
    assert "recall-curve-seen" not in page and str(tmp_path) not in page
    read = list(csv.DictReader((tmp_path / "out" / "gaps.csv").open()))
    assert [float(row["ar_hit_share"]) for row in read] == [-1.0, 0.75]
    assert len((tmp_path / "out" / "evaluations.csv").read_text().splitlines()) == 1 + 6 * 4
    rows = json.loads((tmp_path / "out" / "table.json").read_text())
    assert rows[0]["gap"] is None and rows[1]["gap"] == 0.5


def test_kinds_do_not_mix(tmp_path, runs):
    _, labels, (base, small) = write_case(tmp_path / "case", base=(1, 3), small=(2, 3.1))
    compare(base, [small], labels, out=tmp_path / "gap")
    for folders in ([tmp_path / "gap", runs[0]], [tmp_path / "gap"] * 2, [labels]):
        with pytest.raises(ConfigError, match=r"one gap, or pretraining runs .*; found .*: (gap|labels)"):
            run("report", *folders, "-o", tmp_path / "out")
    with pytest.raises(ConfigError, match="--name is for pretraining runs"):
        run("report", tmp_path / "gap", "--name", "x", "-o", tmp_path / "out")
    with pytest.raises(ConfigError, match="--cap-shares is for the report of a gap"):
        run("report", *runs, "--cap-shares", "-o", tmp_path / "out")
    assert "train-count.png" in run("report", tmp_path / "gap", "-o", tmp_path / "out").stdout


def test_the_same_runs_give_the_same_bytes(tmp_path, runs):
    one = write_curves(open_curves(runs), tmp_path / "one").path
    with matplotlib.rc_context({"font.size": 20, "axes.facecolor": "red"}):
        two = write_curves(open_curves(runs), tmp_path / "two").path
    for path in one.iterdir():
        if path.name != "run.json":
            assert path.read_bytes() == (two / path.name).read_bytes(), path.name


def test_a_run_that_went_on_is_another_report(tmp_path, runs):
    write_curves(open_curves(runs), tmp_path / "out")
    with (tmp_path / ".slow.partial" / "training.jsonl").open("a") as log:
        log.write(log_of([evaluation(300, hit=1, other=1, first=1)]))
    with pytest.raises(ArtifactError, match=r"inputs\.slow is .* --overwrite"):
        write_curves(open_curves(runs), tmp_path / "out")
    found = write_curves(open_curves(runs), tmp_path / "out", overwrite=True)
    assert "| slow | - | 300 |" in (found.path / "report.md").read_text()


def test_one_run_and_slices_by_tokens_seen(tmp_path):
    seen = {"ar_hit_seen": {"n": 20, "loss_sum": 60.0}, "other_seen": {"n": 108, "loss_sum": 300.0}}
    lines = [evaluation(at, hit=64, other=300, first=90, **seen) for at in (0, 10, 1000)]
    report = write_curves(open_curves([unfinished(tmp_path, "a", lines)]), tmp_path / "out")
    names = set(report.meta["files"])
    assert {"recall-curve.png", "recall-curve-seen.svg", "table.csv"} <= names
    assert not {"gap-curve.png", "loss-curve.png", "gaps.csv"} & names
    page = (report.path / "report.md").read_text()
    assert page.startswith("# Recall of a during training\n") and "Gap" not in page


def test_runs_without_a_shared_evaluation_say_so(tmp_path):
    a = unfinished(tmp_path, "a", [evaluation(100, hit=64, other=300, first=90)])
    b = unfinished(tmp_path, "b", [evaluation(77, hit=64, other=300, first=90)])
    curves = open_curves([a, b])
    assert any("share no evaluation" in note for note in curves.notes)
    assert [row[2] for row in curve_table(curves).rows] == ["100", "77"]
    assert draw("gap-curve", curves) is None


def test_thirteen_runs_have_thirteen_looks(tmp_path):
    places = [unfinished(tmp_path, f"m{k}", BASE) for k in range(13)]
    curves = open_curves(places)
    figure = draw("recall-curve", curves)
    lines = [line for line in figure.axes[0].lines if line.get_label().startswith("m")]
    looks = {(line.get_color(), line.get_linestyle(), line.get_marker()) for line in lines}
    assert len(lines) == len(looks) == 13
    assert "12 models against m0" in markdown(page_blocks(curves, []))


def test_the_training_loss_is_averaged_by_tokens(tmp_path):
    few = [train(at, float(at)) for at in (10, 20, 400)]
    many = [train(at, 3.0 if at < 2000 else 5.0) for at in range(1, 4001)]
    last = evaluation(5000, hit=1, other=1, first=1)
    places = [unfinished(tmp_path, name, [*log, last]) for name, log in (("few", few), ("many", many))]
    loss, rate = draw("loss-curve", open_curves(places)).axes
    assert loss.lines[0].get_xydata().tolist() == [[10, 10], [20, 20], [400, 400]]
    tokens, values = loss.lines[1].get_data()
    assert 40 < len(tokens) <= 61 and tokens[-1] == 4000 and set(values[:45]) == {3.0} and values[-1] == 5.0
    widths = np.diff([0, *tokens])
    assert np.sum(widths * values) / 4000 == pytest.approx((3.0 * 1999 + 5.0 * 2001) / 4000)
    assert len(rate.lines[1].get_xdata()) == 4000


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_thin_and_broken_runs_have_a_report(tmp_path, broken):
    line = evaluation(60, hit=0, other=9e5, first=1e9)
    line["slices"]["ar_hit"]["n"], line["slices"]["other"]["n"] = 0, 128
    lines = [{"event": "resume", "tokens": 0}, train(50, broken), line]
    curves = open_curves([unfinished(tmp_path, name, lines) for name in ("a", "b")])
    assert "a: 1 training losses are not finite; the figures leave them out." in curves.notes
    assert "b: lines of other events are not shown ('resume')." in curves.notes
    report = write_curves(curves, tmp_path / "out")
    row = json.loads((report.path / "table.json").read_text())[1]
    assert row["ar_hit_loss"] is row["overall_perplexity"] is row["ar_hit_share"] is None and row["gap"] == 0
    assert set(FIGURES) - {"recall-curve-seen"} == {n[:-4] for n in report.meta["files"] if n.endswith("png")}
