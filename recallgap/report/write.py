"""Gap -> report folder: a page (Markdown, HTML), tables for scripts (CSV, JSON) and figures (PNG, SVG)."""

import json

from recallgap.artifact import open_artifact
from recallgap.report.figures import FIGURES, draw
from recallgap.report.files import write_files
from recallgap.report.page import page_blocks
from recallgap.report.tables import csv_text, main_rows, slice_rows
from recallgap.staging import stage, up_to_date


def write_report(gap, out, *, cap_shares=False, overwrite=False):
    """Write the report of a `Gap`; returns the opened artifact.

    cap_shares: print shares within 0 and 100 %, as the paper's table does; files for scripts keep them raw.
    """
    plan = {"kind": "report", "config": {"cap_shares": cap_shares}, "inputs": {"gap": gap.fingerprint}}
    if overwrite or not up_to_date(out, **plan):
        with stage(out, **plan, overwrite=overwrite) as staging:
            _write_files(gap, staging, cap_shares)
            staging.results = {"models": [model["name"] for model in gap.models]}
    return open_artifact(out, "report")


def _write_files(gap, staging, cap_shares):
    figures = {name: figure for name in FIGURES if (figure := draw(name, gap))}
    texts = {
        "table.csv": csv_text(main_rows(gap)),
        "table.json": json.dumps(main_rows(gap), indent=1) + "\n",
        "slices.csv": csv_text(slice_rows(gap)),
    }
    write_files(staging, figures, page_blocks(gap, list(figures), cap_shares=cap_shares), texts)
