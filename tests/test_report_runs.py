"""Pretraining runs as files: what is read, what is cut off, what is refused."""

import math
from pathlib import Path

import pytest
from run_cases import BASE, CONFIG, INPUTS, SLOW, evaluation, finished, log_of, train, unfinished

from recallgap.errors import ArtifactError, ConfigError
from recallgap.report.curves import open_curves
from recallgap.report.runs import kind_of, open_run


@pytest.fixture
def runs(tmp_path):
    return [finished(tmp_path, "base", BASE), unfinished(tmp_path, "slow", SLOW)]


def test_a_log_cut_anywhere_is_read_up_to_the_cut(tmp_path):
    lines = log_of(BASE).splitlines(keepends=True)
    text = "".join(lines)
    place = unfinished(tmp_path, "a", text)
    log = tmp_path / ".a.partial" / "training.jsonl"
    ends = [len("".join(lines[: k + 1])) - 1 for k in range(len(lines))]  # without the newline
    for cut in range(len(text) + 1):
        log.write_text(text[:cut])
        found = open_run(place)
        n_whole = sum(end <= cut for end in ends)
        assert len(found.training) + len(found.evaluations) == n_whole
        in_line = cut not in {0, *ends, *(end + 1 for end in ends)}
        assert any("is cut off" in note for note in found.notes) == in_line


def test_a_run_has_three_names(tmp_path, runs, monkeypatch):
    base, slow = runs
    monkeypatch.chdir(tmp_path / ".slow.partial")
    found = [open_run(slow), open_run(tmp_path / ".slow.partial"), open_run(Path())]
    assert {run.name for run in found} == {"slow"} and len({run.fingerprint for run in found}) == 1
    assert not found[0].finished and open_run(base).finished
    (tmp_path / "slow").mkdir()  # an empty folder is nothing
    assert open_run(slow).evaluations == found[0].evaluations
    assert kind_of(base) == kind_of(slow) == "checkpoint"


def test_a_run_killed_before_its_rename_is_read(tmp_path):
    place = unfinished(tmp_path, "a", BASE)
    (tmp_path / ".a.partial" / "plan.json").rename(tmp_path / ".a.partial" / "meta.json")
    assert len(open_run(place).evaluations) == 3


BROKEN = [
    ([BASE[1], train(60)], "tokens seen only grow"),
    ([BASE[1], BASE[1]], "tokens seen only grow"),
    ("[1]\n", "line 1 is no JSON object"),
    ('{"event": "tra\n{}\n', "line 1 is no JSON object"),
    ([{"event": "train", "tokens": 5, "loss": 1.0}], "learning_rate is missing, not a number"),
    ([train(5) | {"tokens": 1.5}], "tokens is 1.5, not a whole number"),
    ([train(-5)], "tokens is -5, which cannot be"),
    ([train(5) | {"loss": None}], "loss is None, not a number"),
    ([evaluation(5, hit=1, other=1, first=math.nan)], "slice 'rare_first': loss_sum is nan"),
    (
        [evaluation(5, hit=1, other=1, first=1, all={"n": 5, "loss_sum": 1})],
        "5 scored tokens, but 16 AR hits",
    ),
    ([BASE[1] | {"slices": {"all": {"n": 1, "loss_sum": 1.0}}}], "'ar_hit', 'other', 'rare_first'. missing"),
    ([BASE[1] | {"slices": [1]}], "slices is no object"),
]


@pytest.mark.parametrize(("lines", "message"), BROKEN)
def test_a_broken_log_is_refused(tmp_path, lines, message):
    with pytest.raises(ArtifactError, match=message) as refused:
        open_run(unfinished(tmp_path, "a", lines))
    assert f"reading the run {tmp_path / 'a'}: training.jsonl, line " in str(refused.value)


def test_what_is_no_run_is_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    (tmp_path / ".empty.partial").mkdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("x")
    for name, message in {
        "file": "it is a file",
        "empty": "neither plan.json nor meta.json",
        "full": "no meta.json",
        "nothing": "there is no such folder",
    }.items():
        with pytest.raises(ArtifactError, match=message):
            kind_of(tmp_path / name)
    place = unfinished(tmp_path, "young", [])
    (tmp_path / ".young.partial" / "training.jsonl").unlink()
    with pytest.raises(ArtifactError, match=r"there is no training\.jsonl"):
        open_run(place)


def test_runs_that_cannot_be_compared_are_refused(tmp_path, runs):
    base, _ = runs
    other = finished(tmp_path, "other", BASE, inputs=INPUTS | {"labels": "labels-b"})
    with pytest.raises(ArtifactError, match="labels is labels-a for base, labels-b for other"):
        open_curves([base, other])
    rare = finished(tmp_path, "rare", BASE, config=CONFIG | {"max_train_count": 9})
    with pytest.raises(ArtifactError, match="max_train_count is 50 for base, 9 for rare"):
        open_curves([base, rare])
    line = evaluation(100, hit=1, other=1, first=1, rare_first={"n": 31, "loss_sum": 9.0})
    with pytest.raises(ArtifactError, match="base has 32 tokens in slice rare_first, but more has 31 at 100"):
        open_curves([base, unfinished(tmp_path, "more", [line])])
    with pytest.raises(ArtifactError, match=r"young: it has no evaluation yet \(1 lines"):
        open_curves([base, unfinished(tmp_path, "young", [train(5)])])
    again = finished(tmp_path / "again", "base", BASE)
    with pytest.raises(ConfigError, match="two runs are called 'base'; name each with --name"):
        open_curves([base, again])
    with pytest.raises(ConfigError, match=r"drawing 2 run\(s\): 1 name\(s\)"):
        open_curves([base, again], names=["a"])
    assert [r.name for r in open_curves([base, again], names=["a", "b\n"]).runs] == ["a", "b"]
