"""recallgap theory verify: the paper's constructions on fresh random inputs."""

import json
import secrets
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, help="The constructions of the paper's appendix H, executed.")


@app.callback()
def theory():
    """A group of commands, though it has one."""


@app.command("verify")
def verify(
    checks: Annotated[list[str] | None, typer.Argument(help="Checks to run (default: all).")] = None,
    instances: Annotated[int, typer.Option(help="Random instances a check.")] = 1000,
    seed: Annotated[int | None, typer.Option(help="Seed of the inputs (default: a fresh one).")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for the table, as page and JSON, and figures.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
):
    """Run every construction on random inputs against its literal algorithm: statement, bound, measured,
    verdict. Exits with 1 where a statement fails. docs/theory.md explains the statements and their errata."""
    from recallgap.progress import note
    from recallgap.theory.finding import FAILS
    from recallgap.theory.report import in_lines, write_theory
    from recallgap.theory.verify import verify as run

    seed = secrets.randbelow(2**31) if seed is None else seed
    note(f"theory: seed {seed}")
    names = checks or ()
    if out is None:
        findings = run(names, n_instances=instances, seed=seed)
    else:
        findings = write_theory(out, names, n_instances=instances, seed=seed, overwrite=overwrite)
    if as_json:
        print(json.dumps({"seed": seed, "findings": [asdict(finding) for finding in findings]}, indent=1))
    else:
        print(in_lines(findings))
    if any(finding.verdict == FAILS for finding in findings):
        sys.exit(1)
