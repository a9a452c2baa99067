"""The findings of `verify` for a reader: lines for a terminal, and an artifact of page, JSON and figure."""

import itertools
import json
import textwrap
from dataclasses import asdict

from recallgap.artifact import open_artifact
from recallgap.report.files import write_files
from recallgap.report.markup import Heading, Paragraph, Picture
from recallgap.report.tables import Table, csv_text
from recallgap.staging import stage, up_to_date
from recallgap.theory.complexity import complexity_table
from recallgap.theory.figures import complexity_figure
from recallgap.theory.finding import Finding
from recallgap.theory.verify import verify

FINDINGS = "theory.json"
HEADER = ["Statement", "Checked", "The paper's bound", "Measured", "Instances", "Verdict"]
WIDTHS = (18, 36, 30, 44, 9, 9)
"""Characters of the columns on a terminal."""
CAPTION = (
    "Measured over bound, against the N tokens of N / 3 triples: gates, longest path and most wires alive of "
    "circuits that were built. A bound holds where its lines stay below a constant. Right: what Batcher's "
    "sorting network costs in comparators."
)


def rows(findings):
    """A row of texts a finding, as HEADER."""
    return [[f.statement, f.claim, f.bound, f.measured, f"{f.instances:,}", f.verdict] for f in findings]


def in_lines(findings):
    """The findings as a table of wrapped cells for a terminal."""
    lines = []
    for row in [HEADER, *rows(findings)]:
        cells = [textwrap.wrap(cell, width) or [""] for cell, width in zip(row, WIDTHS, strict=True)]
        for parts in itertools.zip_longest(*cells, fillvalue=""):
            padded = (text.ljust(width) for text, width in zip(parts, WIDTHS, strict=True))
            lines.append("  ".join(padded).rstrip())
        lines.append("")
    return "\n".join(lines[:-1])


def write_theory(out, names=(), *, n_instances, seed, overwrite=False):
    """Run `verify` and write its findings and the complexity table (20 seconds more) into an artifact of
    kind "theory"; returns the findings. The same arguments again only read them."""
    config = {"checks": list(names), "n_instances": n_instances, "seed": seed}
    plan = {"kind": "theory", "config": config, "inputs": {}}
    if overwrite or not up_to_date(out, **plan):
        with stage(out, **plan, overwrite=overwrite) as staging:
            findings, sizes = verify(names, n_instances=n_instances, seed=seed), complexity_table()
            blocks = [
                Heading("The theory, executed", level=1),
                Paragraph(f"Random inputs of seed {seed}; docs/theory.md explains the statements."),
                Table(HEADER, rows(findings), left=4),
                Picture("complexity", CAPTION),
            ]
            columns = list(dict.fromkeys(name for row in sizes for name in row))
            texts = {
                FINDINGS: json.dumps([asdict(f) for f in findings], indent=1, allow_nan=False) + "\n",
                "complexity.csv": csv_text([{name: row.get(name) for name in columns} for row in sizes]),
            }
            write_files(staging, {"complexity": complexity_figure(sizes)}, blocks, texts)
            found = [finding.verdict for finding in findings]
            staging.results = {verdict: found.count(verdict) for verdict in sorted(set(found))}
    return [Finding(**f) for f in json.loads((open_artifact(out, "theory").path / FINDINGS).read_text())]
