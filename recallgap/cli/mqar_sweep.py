"""recallgap mqar sweep --preset small -o OUT: models over widths and tasks of associative recall."""

import json
from pathlib import Path
from typing import Annotated

import typer


def sweep(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the results.", show_default=False)],
    preset: Annotated[
        str, typer.Option(help="small, paper, released, distances, pairs or range (docs/mqar.md).")
    ] = "small",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE,...", help="Change a setting of the preset."),
    ] = None,
    models: Annotated[
        str | None, typer.Option(help="Only these models of the table, with commas between.")
    ] = None,
    workers: Annotated[int, typer.Option(help="Trainings at a time, a process each.")] = 2,
    threads: Annotated[int, typer.Option(help="Threads of each; results repeat exactly with 1.")] = 1,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace another sweep there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print every training's result as JSON.")] = False,
):
    """Train every model at every width, task and learning rate of a preset and print the best accuracy with
    the spread over learning rates. The same command continues an interrupted sweep."""
    from recallgap.mqar.presets import preset_sweep
    from recallgap.mqar.sweep import RunOptions
    from recallgap.mqar.sweep import sweep as run
    from recallgap.mqar.table import best_table
    from recallgap.report import aligned

    plan = preset_sweep(preset, settings=settings or (), models=models and models.split(","))
    options = RunOptions(workers=workers, threads=threads, device=device)
    rows = run(plan, out, options=options, overwrite=overwrite)
    print(json.dumps(rows, indent=1) if as_json else aligned(best_table(plan.varied, rows)))
