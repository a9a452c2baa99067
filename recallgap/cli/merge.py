"""recallgap merge COUNTS...: add up the counts of several tasks or training corpora."""

from pathlib import Path
from typing import Annotated

import typer

from recallgap.cli.count import show


def merge(
    counts: Annotated[list[Path], typer.Argument(help="Counts of the same n-grams.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the sum.")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
):
    """Add up counts made for one corpus, such as those of all tasks of `recallgap count --task`."""
    from recallgap.counts import merge_counts, open_counts

    merged = merge_counts([open_counts(path) for path in counts], out, overwrite=overwrite)
    show(merged, f"sum of {len(counts)}", as_json)
