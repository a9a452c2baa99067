"""Progress lines where stderr is no terminal."""

import pytest

from recallgap import progress


def test_the_last_state_is_shown_once(capsys, monkeypatch):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", -1)
    with progress.Progress("count", total=10) as shown:
        shown.advance(4)
        shown.advance(6)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(",")[0] for line in lines] == ["count: 4 of 10 tokens", "count: 10 of 10 tokens"]


def test_nothing_done_says_nothing(capsys):
    with progress.Progress("count", total=10):
        pass
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("seconds", "rate"), [(5, "2 points/s"), (10, "1 points/s"), (40, "15.0 points/min")]
)
def test_slow_work_is_counted_by_the_minute(capsys, monkeypatch, seconds, rate):
    now = iter([0.0, seconds, seconds, seconds])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(now))
    with progress.Progress("sweep", unit="points") as shown:
        shown.advance(10)
    assert capsys.readouterr().err == f"sweep: 10 points, {rate}\n"


def test_the_rate_is_that_of_this_run(capsys, monkeypatch):
    now = iter([0.0, 1.0, 1.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(now))
    with progress.Progress("sweep", total=90, unit="points", done=80) as shown:
        shown.advance(4)
    assert capsys.readouterr().err == "sweep: 84 of 90 points, 4 points/s\n"


def test_what_was_done_before_is_not_news(capsys):
    with progress.Progress("sweep", total=80, unit="points", done=80):
        pass
    assert capsys.readouterr().err == ""
