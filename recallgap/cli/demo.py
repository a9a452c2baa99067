"""recallgap demo: the built-in example, a real checkpoint on real text."""

from pathlib import Path
from typing import Annotated

import typer


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for all it makes.")] = Path("demo-out"),
    checkpoint: Annotated[str, typer.Option(help="Which checkpoint to run: smollm2.")] = "smollm2",
):
    """Run SmolLM2-135M with 1024 tokens of context and with 64, and show where the second one loses."""
    from recallgap import demo as example
    from recallgap.report import aligned, main_table, shown, slice_table

    gap = example.run_demo(out, checkpoint=checkpoint)
    print(aligned(main_table(gap)))
    print()
    print(aligned(slice_table(gap, "distance", model=1)))
    print()
    for line in example.reading(gap):
        print(line)
    for warning in gap.warnings:
        print(f"note: {shown(warning)}")
    print(f"figures and page: {out / 'report'}")
