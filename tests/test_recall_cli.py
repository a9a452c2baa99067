"""recallgap label: one line or JSON on stdout, all else on stderr."""

import json

import pytest
from test_counts_counting import corpus_of
from typer.testing import CliRunner

from recallgap.cli import main
from recallgap.counts import count_ngrams
from recallgap.errors import ConfigError
from recallgap.recall import open_labels


@pytest.fixture
def run(tmp_path):
    corpus = corpus_of(tmp_path / "corpus", [[1, 2, 1, 2, 0], [1, 2, 0]], separator_id=0)
    count_ngrams(corpus, tmp_path / "counts", for_corpus=corpus, orders=(2, 3))

    def run(*options):
        words = [
            "label",
            tmp_path / "corpus",
            "--counts",
            tmp_path / "counts",
            "-o",
            tmp_path / "out",
            *options,
        ]
        result = CliRunner().invoke(main.app, list(map(str, words)), standalone_mode=False)
        if result.exception is not None:
            raise result.exception
        return result.stdout

    return run


def test_one_line(run, tmp_path):
    (line,) = run("--max-train-count", 3).splitlines()
    assert line.startswith(
        f"labels {tmp_path / 'out'}: 8 tokens, 25.00% repeat a 2-gram of their context, 25.00%"
    )
    assert "are AR hits (at most 3 times in 8 training tokens); " in line
    assert line.endswith(" tokens/s")


def test_all_options_reach_the_labels(run, tmp_path):
    options = ["--context-len", 5, "--policy", "document", "--rate-per-million", 125000, "--order", 3]
    found = json.loads(run(*options, "--separators", "keep", "--count-orders", "2", "--json"))
    labels = open_labels(tmp_path / "out")
    assert (found["fingerprint"], found["n_contexts"]) == (labels.fingerprint, 2)
    assert labels.config == {
        "order": 3,
        "policy": "document",
        "context_len": 5,
        "max_train_count": 1,
        "rate_per_million": 125000.0,
        "separators": "keep",
        "count_orders": [2],
    }


def test_options_that_cannot_be(run):
    with pytest.raises(ConfigError, match="both set the threshold"):
        run("--max-train-count", 3, "--rate-per-million", 2)
    with pytest.raises(ConfigError, match="reading --count-orders '3;4'"):
        run("--count-orders", "3;4")
