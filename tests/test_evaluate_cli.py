"""recallgap evaluate: one line out, the same defaults as the library."""

import dataclasses
import json

import models
from models import random_corpus
from typer.testing import CliRunner

from recallgap.artifact import open_artifact
from recallgap.cli import evaluate as verb
from recallgap.cli.main import app
from recallgap.errors import ArtifactError
from recallgap.evaluate import EvaluateConfig


def test_command_line(tmp_path):
    models.random_model("llama").save_pretrained(tmp_path / "tiny")
    random_corpus(tmp_path / "corpus", (30,))
    command = [
        "evaluate",
        *(str(tmp_path / name) for name in ("tiny", "corpus")),
        "-o",
        str(tmp_path / "out"),
    ]
    first = CliRunner().invoke(app, [*command, "--context-len", "8"], catch_exceptions=False)
    made = open_artifact(tmp_path / "out", "losses")
    assert first.exit_code == 0
    assert first.stdout.count("\n") == 1
    assert f"tiny, perplexity {made.results['perplexity']:.4f} over 26 scored of 30 tokens" in first.stdout
    assert "tokens/s" in first.stdout
    second = CliRunner().invoke(app, [*command, "--context-len", "8", "--json"], catch_exceptions=False)
    assert json.loads(second.stdout) == {
        "losses": str(tmp_path / "out"),
        "fingerprint": made.fingerprint,
        **made.results,
    }
    third = CliRunner().invoke(app, [*command, "--context-len", "8", "--name", "renamed"])
    assert isinstance(third.exception, ArtifactError) and "config.model" in str(third.exception)


def test_command_line_defaults_are_those_of_the_library():
    config, options = EvaluateConfig(), verb.evaluate.__defaults__
    names = verb.evaluate.__code__.co_varnames[: verb.evaluate.__code__.co_argcount][-len(options) :]
    found = dict(zip(names, options, strict=True))
    shared = [field.name for field in dataclasses.fields(config) if field.name in found]
    assert len(shared) == 7
    assert {name: found[name] for name in shared} == {name: getattr(config, name) for name in shared}
