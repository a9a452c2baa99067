"""recallgap report GAP: the page, tables and figures of a gap."""

import json
from pathlib import Path
from typing import Annotated

import typer


def report(
    gap: Annotated[Path, typer.Argument(help="Folder of a gap made by `recallgap compare`.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the report to write.")],
    cap_shares: Annotated[
        bool, typer.Option("--cap-shares", help="Print shares within 0 and 100 %, as the paper does.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace another report there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the names of the files as JSON.")] = False,
):
    """Write report.md and report.html, the tables as CSV and JSON, and the figures as PNG and SVG."""
    from recallgap.report import write_report
    from recallgap.slices import open_gap

    written = write_report(open_gap(gap), out, cap_shares=cap_shares, overwrite=overwrite)
    files = sorted(written.meta["files"])
    print(json.dumps({"files": files}) if as_json else f"report {out}: {', '.join(files)}")
