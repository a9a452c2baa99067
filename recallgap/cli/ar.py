"""recallgap ar CHECKPOINT...: text in, AR perplexity of checkpoints and their gap out, every step cached."""

import json
from pathlib import Path
from typing import Annotated

import typer

from recallgap.progress import note


def ar(
    checkpoints: Annotated[list[str], typer.Argument(help="Checkpoints; the first is the baseline.")],
    corpus: Annotated[str, typer.Option("--corpus", help="Evaluation corpus: a corpus folder, or text.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for all artifacts.")],
    train_corpus: Annotated[
        str | None, typer.Option("--train-corpus", help="Training corpus to count in: folder, or text.")
    ] = None,
    counts: Annotated[
        Path | None, typer.Option("--counts", help="Counts artifact, in place of --train-corpus.")
    ] = None,
    tokenizer: Annotated[
        str | None, typer.Option(help="For text: tokenizer; the first checkpoint's if not given.")
    ] = None,
    separator: Annotated[str, typer.Option(help="For text: token that ends a document.")] = "auto",
    policy: Annotated[str, typer.Option(help="How the stream is cut: packed or document.")] = "packed",
    context_len: Annotated[int, typer.Option(help="Tokens per context.")] = 2048,
    max_train_count: Annotated[int | None, typer.Option(help="An AR hit occurs at most so often.")] = None,
    rate_per_million: Annotated[
        float | None, typer.Option(help="The same as a rate per million training tokens.")
    ] = None,
    dtype: Annotated[str, typer.Option(help="Of the weights: float32, bfloat16, float16.")] = "float32",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    common: Annotated[bool, typer.Option("--common", help="Compare the tokens all models score.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the table as JSON.")] = False,
):
    """Build, count, label, evaluate, compare and report; what is in OUT already is not made again."""
    from recallgap.corpus import BuildConfig
    from recallgap.evaluate import EvaluateConfig
    from recallgap.pipeline import ar_perplexity
    from recallgap.recall import LabelConfig
    from recallgap.report import aligned, main_rows, main_table, shown

    threshold = {"max_train_count": max_train_count, "rate_per_million": rate_per_million}
    gap = ar_perplexity(
        checkpoints,
        corpus=corpus,
        train_corpus=train_corpus,
        counts=counts,
        out=out,
        build=BuildConfig(tokenizer=tokenizer or checkpoints[0], separator=separator),
        labels=LabelConfig(policy=policy, context_len=context_len, **threshold),
        evaluation=EvaluateConfig(policy=policy, context_len=context_len, dtype=dtype, device=device),
        common=common,
    )
    if as_json:
        print(json.dumps({"table": main_rows(gap), "warnings": gap.warnings}, indent=1))
        return
    print(aligned(main_table(gap)))
    for warning in gap.warnings:
        note(f"note: {shown(warning)}")
    print(f"report {out / 'report'}")
