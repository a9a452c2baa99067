"""recallgap sweep RECIPE --set learning_rate=1e-3,3e-3: one recipe under several settings."""

import json
from pathlib import Path
from typing import Annotated

import typer

from recallgap.cli.pretrain import refuse_both


def sweep(
    recipe: Annotated[
        str, typer.Argument(help="A recipe (`recallgap list recipes`) or a recallgap config.json.")
    ],
    corpus: Annotated[Path, typer.Option(help="Training corpus folder.", show_default=False)],
    eval_corpus: Annotated[Path, typer.Option(help="Evaluation corpus folder.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the runs.", show_default=False)],
    settings: Annotated[
        list[str],
        typer.Option("--set", metavar="NAME=VALUE,...", help="A setting; with several values it is varied."),
    ],
    labels: Annotated[
        Path | None, typer.Option(help="Labels of the evaluation corpus; else made in OUT.")
    ] = None,
    max_train_count: Annotated[
        int | None, typer.Option(help="An AR hit's bigram occurs at most so often in training [1250].")
    ] = None,
    rate_per_million: Annotated[
        float | None, typer.Option(help="The same per million training tokens.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    device_batch_size: Annotated[int, typer.Option(help="Contexts per forward; speed and memory only.")] = 8,
    compile: Annotated[bool, typer.Option("--compile", help="Compile the model with torch.compile.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the table as JSON.")] = False,
):
    """Pretrain a recipe at every point of a grid of settings; print the best and the spread. The same command
    continues an interrupted sweep."""
    from recallgap.corpus import open_corpus
    from recallgap.pretrain import RunOptions
    from recallgap.pretrain.sweep import in_words
    from recallgap.pretrain.sweep import sweep as run
    from recallgap.recall import open_labels

    thresholds = {"max_train_count": max_train_count, "rate_per_million": rate_per_million}
    refuse_both(labels, thresholds)
    table = run(
        recipe,
        settings,
        open_corpus(corpus),
        open_corpus(eval_corpus),
        out,
        labels=None if labels is None else open_labels(labels),
        thresholds=thresholds,
        options=RunOptions(device=device, device_batch_size=device_batch_size, compile=compile),
    )
    print(json.dumps(table, indent=1) if as_json else in_words(table))
