"""recallgap report GAP, or RUN...: the page, tables and figures of a gap, or of pretraining runs."""

import json
from pathlib import Path
from typing import Annotated

import typer

from recallgap.errors import ConfigError
from recallgap.progress import note


def report(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="GAP|RUN...",
            help="One gap made by `recallgap compare`; or pretraining runs, the baseline first, finished or "
            "going on.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the report to write.")],
    names: Annotated[
        list[str] | None,
        typer.Option("--name", help="Name of a run; once a run, in order (default: their folders' names)."),
    ] = None,
    cap_shares: Annotated[
        bool, typer.Option("--cap-shares", help="Print a gap's shares within 0 and 100 %, as the paper does.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace another report there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the names of the files as JSON.")] = False,
):
    """Write report.md and report.html, the tables as CSV and JSON, and the figures as PNG and SVG."""
    from recallgap.report import aligned, write_report
    from recallgap.report.curve_page import curve_table, write_curves
    from recallgap.report.curves import open_curves
    from recallgap.report.runs import kind_of
    from recallgap.slices import open_gap

    kinds = [kind_of(folder) for folder in folders]
    if set(kinds) == {"checkpoint"}:
        if cap_shares:
            raise ConfigError(
                "--cap-shares is for the report of a gap, not of pretraining runs; leave it out"
            )
        curves = open_curves(folders, names=names)
        written = write_curves(curves, out, overwrite=overwrite)
        for sentence in curves.notes:
            note(f"note: {sentence}")
        if not as_json:
            print(aligned(curve_table(curves)))
    elif kinds == ["gap"]:
        if names:
            raise ConfigError("--name is for pretraining runs, not for the report of a gap; leave it out")
        written = write_report(open_gap(folders[0]), out, cap_shares=cap_shares, overwrite=overwrite)
    else:
        found = ", ".join(f"{folder}: {kind}" for folder, kind in zip(folders, kinds, strict=True))
        raise ConfigError(
            f"writing report {out}: one gap, or pretraining runs (checkpoints) alone, make a report; "
            f"found {found}"
        )
    files = sorted(written.meta["files"])
    print(json.dumps({"files": files}) if as_json else f"report {out}: {', '.join(files)}")
