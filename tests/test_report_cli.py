"""compare, report and list on the command line."""

import json
import subprocess
import sys

import numpy as np
import pytest
from gap_cases import random_losses, write_case, write_losses
from typer.testing import CliRunner

from recallgap.cli.main import app
from recallgap.errors import ArtifactError, ConfigError
from recallgap.slices import SLICES


@pytest.fixture
def case(tmp_path):
    columns, _, _ = write_case(tmp_path, base=(1, 3), small=(2, 3.1))
    return columns, tmp_path


def run(*arguments):
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result


def test_compare_then_report(case):
    _, folder = case
    command = ("compare", folder / "base", folder / "small", "-l", folder / "labels", "-o", folder / "gap")
    result = run(*command)
    assert result.stdout.splitlines()[0].split()[:3] == ["Model", "Parameters", "Overall"]
    assert result.stdout.splitlines()[-1] == f"gap {folder / 'gap'}: 8,560 tokens, 40 documents"
    assert "note: The 40 document(s) weigh like" in result.stderr
    read = json.loads(run(*command, "--json").stdout)
    assert [row["model"] for row in read["table"]] == ["base", "small"] and read["warnings"]
    said = run("report", folder / "gap", "-o", folder / "report").stdout
    assert said.startswith(f"report {folder / 'report'}: ") and "report.html" in said
    files = json.loads(run("report", folder / "gap", "-o", folder / "report", "--json").stdout)["files"]
    assert "train-count.svg" in files
    capped = run(*command, "--cap-shares").stdout
    assert capped.splitlines()[4].endswith("100.0]")


def test_common_and_its_refusal(case):
    columns, folder = case
    loss_T = random_losses(9, columns)
    loss_T[::9] = np.nan
    short = write_losses(folder / "short", loss_T)
    command = ("compare", folder / "base", short, "-l", folder / "labels", "-o", folder / "gap")
    with pytest.raises(ArtifactError, match="--common"):
        run(*command)
    assert not (folder / "gap").exists()
    assert "are left out" in run(*command, "--common").stderr


def test_list_prints_a_line_an_entry():
    lines = run("list", "slices").stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(SLICES)
    assert [line.split()[0] for line in run("list", "policies").stdout.splitlines()] == ["packed", "document"]
    assert "jsonl" in run("list", "readers").stdout
    with pytest.raises(ConfigError, match="Did you mean 'slices'"):
        run("list", "slice")


def test_listing_and_reporting_load_no_torch():
    code = (
        "import sys, recallgap.slices, recallgap.report, recallgap.cli.main as m;"
        "sys.exit(any(name in sys.modules for name in ('torch', 'transformers')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
