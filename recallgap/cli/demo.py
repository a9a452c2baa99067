"""recallgap demo: a built-in example, real checkpoints on real text."""

from pathlib import Path
from typing import Annotated

import typer


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for all it makes.")] = Path("demo-out"),
    example: Annotated[
        str,
        typer.Option(help="shipped: our small models. smollm2: SmolLM2-135M, fetched, with short windows."),
    ] = "shipped",
):
    """Compare checkpoints on real text and show where they lose. `shipped` needs no network."""
    from recallgap import demo as built_in
    from recallgap.report import aligned, main_table, shown, slice_table

    gap = built_in.run_demo(out, example=example)
    print(aligned(main_table(gap)))
    print()
    print(aligned(slice_table(gap, "distance", model=1)))
    print()
    for line in built_in.reading(gap, example):
        print(line)
    for warning in gap.warnings:
        print(f"note: {shown(warning)}")
    print(f"figures and page: {out / example / 'report'}")
