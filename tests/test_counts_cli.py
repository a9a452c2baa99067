"""recallgap count and merge: one line or JSON on stdout, all else on stderr."""

import json

import pytest
from test_counts_counting import corpus_of
from typer.testing import CliRunner

from recallgap.cli import main
from recallgap.counts import open_counts
from recallgap.errors import ConfigError


@pytest.fixture
def run(tmp_path):
    corpus_of(tmp_path / "train", [[1, 2, 1, 2], [2, 1]])
    corpus_of(tmp_path / "more", [[1, 2]])
    corpus_of(tmp_path / "eval", [[1, 2, 1]])

    def run(*words):
        words = [str(tmp_path / word) if word in KNOWN_PATHS else word for word in words]
        result = CliRunner().invoke(main.app, words, standalone_mode=False)
        if result.exception is not None:
            raise result.exception
        return result

    return run


KNOWN_PATHS = {"train", "more", "eval", "c", "a", "b", "m"}


def test_count_and_merge(run, tmp_path):
    counted = run("count", "train", "more", "--for", "eval", "-o", "c", "--orders", "2,3")
    (line,) = counted.stdout.splitlines()
    assert line.startswith(
        f"counts {tmp_path / 'c'}: 8 training tokens; 2 2-grams found 5 times, 1 at document"
    )
    assert "1 3-grams found 1 times, 2 at document borders skipped" in line
    assert line.endswith(" tokens/s")
    for task, out in (("0/2", "a"), ("1/2", "b")):
        partial = run("count", "train", "more", "--for", "eval", "-o", out, "--orders", "2,3", "--task", task)
        assert "of the training tokens; merge all tasks" in partial.stderr
    merged = run("merge", "a", "b", "-o", "m")
    assert merged.stdout.endswith("borders skipped; sum of 2\n")
    assert open_counts(tmp_path / "m").fingerprint == open_counts(tmp_path / "c").fingerprint
    found = json.loads(run("merge", "a", "b", "-o", "m", "--json").stdout)
    assert (found["train_tokens"], found["coverage"], found["counts"]) == (8, 1.0, str(tmp_path / "m"))


def test_across_documents(run):
    run("count", "train", "--for", "eval", "-o", "c")
    assert (
        "0 at document borders"
        in run("count", "train", "--for", "eval", "-o", "a", "--across-documents").stdout
    )


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--orders", "2,x", "reading --orders '2,x': expected whole numbers"),
        ("--orders", "-2", "reading --orders '-2'"),
        ("--task", "1", "reading --task '1': expected i/N"),
        ("--task", "2/2", "task is 2/2, but tasks are numbered from 0/N"),
    ],
)
def test_options_that_cannot_be(run, option, value, message):
    with pytest.raises(ConfigError, match=message):
        run("count", "train", "--for", "eval", "-o", "c", option, value)
