"""Progress lines where stderr is no terminal."""

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
