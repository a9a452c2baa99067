"""`recallgap theory verify`: every check runs, repeats itself, and a failure is seen."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from recallgap.cli.main import app
from recallgap.errors import ConfigError
from recallgap.theory import report
from recallgap.theory.finding import ERRATUM, FAILS, HOLDS, Finding
from recallgap.theory.verify import CHECKS, verify

FEW = 8
EXPLAINED = (Path(__file__).parents[1] / "docs" / "theory.md").read_text()
QUICK = ("comparators", "primitives", "attention")


@pytest.mark.parametrize("name", CHECKS)
def test_every_statement_holds_on_fresh_inputs(name):
    findings = verify([name], n_instances=FEW, seed=1)
    assert findings
    assert [f for f in findings if f.verdict not in (HOLDS, ERRATUM)] == []
    assert any(f.instances >= FEW for f in findings)
    assert [f.statement for f in findings if f.statement.split()[-1] not in EXPLAINED] == []


def test_a_check_alone_repeats_what_it_did_among_others():
    together = verify(QUICK, n_instances=FEW, seed=3)
    alone = [finding for name in QUICK for finding in verify([name], n_instances=FEW, seed=3)]
    assert together == alone


def test_bad_requests():
    for arguments, message in (
        ({"names": ["atention"]}, "Did you mean 'attention'"),
        ({"n_instances": 0}, "ask for at least 1"),
        ({"seed": -1}, "not negative"),
    ):
        with pytest.raises(ConfigError, match=message):
            verify(**arguments)


def invoke(*arguments):
    return CliRunner().invoke(app, ["theory", "verify", *arguments], catch_exceptions=False)


def test_the_command_prints_a_table_or_json():
    done = invoke("attention", "--instances", str(FEW), "--seed", "0")
    assert done.exit_code == 0
    assert done.stdout.splitlines()[0].split() == " ".join(report.HEADER).split()
    assert "Proposition H.27" in done.stdout
    found = json.loads(invoke("attention", "--instances", str(FEW), "--seed", "5", "--json").stdout)
    assert found["seed"] == 5
    assert all(Finding(**finding).verdict in (HOLDS, ERRATUM) for finding in found["findings"])


def test_a_statement_that_fails_is_exit_1(monkeypatch):
    def broken(rng, n_instances):
        return [Finding(statement="S", claim="c", bound="b", measured="3 wrong", instances=9, verdict=FAILS)]

    monkeypatch.setitem(CHECKS, "attention", broken)
    done = invoke("attention")
    assert done.exit_code == 1
    assert "3 wrong" in done.stdout


def test_the_artifact_has_page_table_and_figure_and_is_made_once(tmp_path, monkeypatch):
    small = report.complexity_table(triples=(4, 8), bits=(4,))
    monkeypatch.setattr(report, "complexity_table", lambda: small)
    arguments = ("comparators", "--instances", str(FEW), "--seed", "2", "-o", str(tmp_path / "out"))
    first = invoke(*arguments)
    for name in ("theory.json", "complexity.csv", "complexity.png", "report.html", "report.md"):
        assert (tmp_path / "out" / name).stat().st_size > 0
    assert "Lemma H.32" in (tmp_path / "out" / "report.md").read_text()
    assert len((tmp_path / "out" / "complexity.csv").read_text().splitlines()) == 1 + len(small)
    monkeypatch.setattr(report, "verify", None)
    assert invoke(*arguments).stdout == first.stdout
