"""recallgap label CORPUS --counts COUNTS: which tokens could be recalled from their context."""

import json
from pathlib import Path
from typing import Annotated

import typer

from recallgap.cli.count import numbers


def label(
    corpus: Annotated[Path, typer.Argument(help="Corpus to label.")],
    counts: Annotated[Path, typer.Option(help="Training counts of its n-grams.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the labels.")],
    context_len: Annotated[int, typer.Option(help="Tokens per context, as the models see them.")] = 2048,
    policy: Annotated[str, typer.Option(help="How contexts are cut: packed or document.")] = "packed",
    max_train_count: Annotated[
        int | None, typer.Option(help="An AR hit's n-gram occurs at most so often in training [1250].")
    ] = None,
    rate_per_million: Annotated[
        float | None, typer.Option(help="The same per million training tokens, in its place.")
    ] = None,
    order: Annotated[int, typer.Option(help="n of the n-grams.")] = 2,
    separators: Annotated[
        str, typer.Option(help="n-grams with a document separator: drop or keep.")
    ] = "drop",
    count_orders: Annotated[
        str, typer.Option(help="Further orders whose training counts are stored, such as 3,4.")
    ] = "",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
):
    """Find the AR hits of a corpus. The same command continues an interrupted one."""
    from recallgap.artifact import staging_path
    from recallgap.corpus import open_corpus
    from recallgap.counts import open_counts
    from recallgap.recall import LabelConfig
    from recallgap.recall import label as compute

    config = LabelConfig(
        order=order,
        policy=policy,
        context_len=context_len,
        max_train_count=max_train_count,
        rate_per_million=rate_per_million,
        separators=separators,
        count_orders=tuple(numbers("--count-orders", count_orders)) if count_orders else (),
    )
    continued = staging_path(out).exists()
    labels = compute(open_corpus(corpus), open_counts(counts), out, config=config, overwrite=overwrite)
    found = labels.results
    if as_json:
        print(json.dumps({"labels": str(out), "fingerprint": labels.fingerprint, **found}, indent=1))
        return
    seconds = json.loads((out / "run.json").read_text())["seconds"]
    rate = "continued" if continued else f"{found['n_tokens'] / max(seconds, 1e-3):,.0f} tokens/s"
    n_tokens = max(found["n_tokens"], 1)
    print(
        f"labels {out}: {found['n_tokens']:,} tokens, {found['n_repeated'] / n_tokens:.2%} repeat a "
        f"{order}-gram of their context, {found['n_ar_hits'] / n_tokens:.2%} are AR hits (at most "
        f"{labels.config['max_train_count']:,} times in {found['train_tokens']:,} training tokens); {rate}"
    )
