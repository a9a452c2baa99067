"""recallgap compare BASE MODEL...: how far models are behind a baseline, and on which tokens."""

import json
from pathlib import Path
from typing import Annotated

import typer

from recallgap.progress import note


def compare(
    base: Annotated[Path, typer.Argument(help="Losses of the baseline.")],
    labels: Annotated[Path, typer.Option("--labels", "-l", help="Labels of the same corpus and contexts.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the gap to write.")],
    models: Annotated[list[Path] | None, typer.Argument(help="Losses of the models to compare.")] = None,
    common: Annotated[
        bool, typer.Option("--common", help="Use the tokens that all models score, where these differ.")
    ] = False,
    level: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
    cap_shares: Annotated[
        bool, typer.Option("--cap-shares", help="Print shares within 0 and 100 %, as the paper does.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace another gap there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the table as JSON.")] = False,
):
    """Print the perplexities on AR hits and other tokens and the gap to the baseline, and keep all slices."""
    from recallgap import report, slices

    gap = slices.compare(base, models or [], labels, common=common, level=level, out=out, overwrite=overwrite)
    if as_json:
        print(json.dumps({"table": report.main_rows(gap), "warnings": gap.warnings}, indent=1))
        return
    print(report.aligned(report.main_table(gap, cap_shares=cap_shares)))
    for warning in gap.warnings:
        note(f"note: {report.shown(warning)}")
    print(f"gap {out}: {gap.slices('all')['all']['n']:,} tokens, {gap.record['documents']['n']:,} documents")
