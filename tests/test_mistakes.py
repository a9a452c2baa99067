"""Mistakes that a newcomer made: each ends in one clear message."""

import errno

import pytest

import recallgap
from recallgap.cli import main as command
from recallgap.corpus import BuildConfig, ContextPolicy, build_corpus, write_corpus
from recallgap.counts import count_ngrams
from recallgap.errors import ConfigError
from recallgap.evaluate import EvaluateConfig
from recallgap.recall import LabelConfig

HUGE = 10**23


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ContextPolicy(context_len=HUGE), "a context holds at most"),
        (lambda: EvaluateConfig(context_len=HUGE), "a context holds at most"),
        (lambda: LabelConfig(max_train_count=HUGE), "a threshold lies between"),
        (lambda: LabelConfig(rate_per_million=1e300), "a threshold lies between"),
        (lambda: LabelConfig(rate_per_million=float("nan")), "a threshold lies between"),
    ],
)
def test_huge_numbers(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


def test_a_huge_window_is_a_whole_context():
    assert EvaluateConfig(window=HUGE).window == HUGE


def test_huge_orders(tmp_path):
    corpus = write_corpus(tmp_path / "c", [[1, 2]], vocab_size=3)
    with pytest.raises(ConfigError, match="each from 1 to 64"):
        count_ngrams(corpus, tmp_path / "n", for_corpus=corpus, orders=(5_000_000_000,))


def test_separators_that_differ_are_said_aloud(tmp_path, capsys):
    train = write_corpus(tmp_path / "train", [[1, 2, 0]], vocab_size=4, separator_id=0)
    evaluation = write_corpus(tmp_path / "evaluation", [[1, 2, 3]], vocab_size=4, separator_id=3)
    count_ngrams(train, tmp_path / "n", for_corpus=evaluation)
    assert "documents end with id 0" in capsys.readouterr().err


def test_an_output_inside_its_input(tmp_path, tokenizer_file):
    (tmp_path / "text.txt").write_text("some text")
    with pytest.raises(ConfigError, match="lies inside the input"):
        build_corpus([tmp_path], tmp_path / "out", config=BuildConfig(tokenizer=str(tokenizer_file)))


@pytest.mark.parametrize("kind", [PermissionError, NotADirectoryError, IsADirectoryError])
def test_a_path_that_cannot_be_used_exits_with_2(kind, monkeypatch, capsys):
    def fail():
        raise kind(errno.EACCES, "Permission denied", "secret.txt")

    monkeypatch.setattr(command, "app", fail)
    with pytest.raises(SystemExit) as stopped:
        command.main()
    assert stopped.value.code == 2
    assert capsys.readouterr().err.startswith("recallgap: reading or writing 'secret.txt'")


def test_the_command_knows_its_version(capsys):
    with pytest.raises(SystemExit) as exit_:
        command.app(["--version"])
    assert exit_.value.code == 0
    assert capsys.readouterr().out == f"recallgap {recallgap.__version__}\n"
