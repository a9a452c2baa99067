"""recallgap pretrain RECIPE --corpus TRAIN --eval-corpus VAL -o OUT: train a model from scratch."""

import json
import math
from pathlib import Path
from typing import Annotated

import typer

from recallgap.errors import ConfigError


def pretrain(
    recipe: Annotated[
        str, typer.Argument(help="A recipe (`recallgap list recipes`) or a recallgap config.json.")
    ],
    corpus: Annotated[Path, typer.Option(help="Training corpus folder.", show_default=False)],
    eval_corpus: Annotated[Path, typer.Option(help="Evaluation corpus folder.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the checkpoint.", show_default=False)],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Change a setting (`recallgap list settings`)."),
    ] = None,
    labels: Annotated[
        Path | None, typer.Option(help="Labels of the evaluation corpus; else made beside OUT.")
    ] = None,
    max_train_count: Annotated[
        int | None, typer.Option(help="An AR hit's bigram occurs at most so often in training (1250).")
    ] = None,
    rate_per_million: Annotated[
        float | None, typer.Option(help="The same per million training tokens.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    device_batch_size: Annotated[int, typer.Option(help="Contexts per forward; speed and memory only.")] = 8,
    compile: Annotated[bool, typer.Option("--compile", help="Compile the model with torch.compile.")] = False,
    fsdp: Annotated[bool, typer.Option("--fsdp", help="Under torchrun: shard instead of copy.")] = False,
    save_minutes: Annotated[float, typer.Option(help="Least time between checkpoints.")] = 10.0,
    log_to: Annotated[
        list[str] | None, typer.Option(help="tensorboard or wandb, besides training.jsonl.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what it would take, from a few measured steps.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
):
    """Pretrain a model. The same command continues an interrupted run; torchrun spreads it over GPUs."""
    from recallgap.corpus import open_corpus
    from recallgap.pretrain import RunOptions, estimate, resolved
    from recallgap.pretrain import pretrain as train
    from recallgap.recall import LabelConfig, open_labels

    model_config, config = resolved(recipe, settings or ())
    thresholds = {"max_train_count": max_train_count, "rate_per_million": rate_per_million}
    refuse_both(labels, thresholds)
    options = RunOptions(
        device=device,
        device_batch_size=device_batch_size,
        compile=compile,
        fsdp=fsdp,
        save_minutes=save_minutes,
        loggers=tuple(log_to or ()),
    )
    corpora = open_corpus(corpus), open_corpus(eval_corpus)
    if dry_run:
        found = estimate(model_config, *corpora, config=config, options=options)
        print(json.dumps(found, indent=1) if as_json else _in_words(recipe, found))
        return
    made = train(
        model_config,
        *corpora,
        out,
        config=config,
        labels=None if labels is None else open_labels(labels),
        label_config=LabelConfig(context_len=config.context_len, **thresholds),
        options=options,
        overwrite=overwrite,
    )
    if made is not None:
        _print(made, out, as_json)


def refuse_both(labels, thresholds):
    """ConfigError where labels are given and a threshold that they would not have."""
    given = [name for name, value in thresholds.items() if value is not None]
    if labels is not None and given:
        option = given[0].replace("_", "-")
        raise ConfigError(f"--labels {labels} have their own threshold: leave --{option} away, or --labels")


def _print(made, out, as_json):
    """One line, or JSON, of a finished run; the first process alone has it."""
    last = [entry for entry in made.log() if entry["event"] == "evaluation"][-1]["slices"]
    perplexity = {name: math.exp(part["loss_sum"] / part["n"]) for name, part in last.items() if part["n"]}
    record = json.loads((out / "run.json").read_text())
    if as_json:
        found = {"checkpoint": str(out), "fingerprint": made.fingerprint, **made.results}
        print(json.dumps({**found, "perplexity": perplexity, "run": record}, indent=1))
        return
    parts = ", ".join(f"{name} {value:.2f}" for name, value in perplexity.items())
    found, speed = made.results, record["tokens_per_second"]
    print(
        f"checkpoint {out}: {found['n_parameters']:,} parameters, {found['tokens']:,} tokens, "
        f"{speed:,.0f} tokens/s, {record['model_flop_utilisation']:.1%} of the measured matmul rate; "
        f"perplexity: {parts}"
    )


def _in_words(recipe, found):
    minutes, mib = found["seconds"] / 60, 1 / 2**20
    lines = [
        f"{recipe}: {found['n_parameters']:,} parameters",
        f"{found['tokens']:,} tokens in {found['steps']:,} steps of {found['step_tokens']:,}: "
        f"{found['epochs']:.3g} epochs of {found['corpus_tokens']:,} tokens; "
        f"{found['shared_documents']:,} evaluation documents stand in the training corpus",
        f"{found['seconds_per_step']:.3g} s a step, {found['tokens_per_second']:,.0f} tokens/s, "
        f"{found['model_flop_utilisation']:.1%} of the measured matmul rate",
        f"{minutes:,.1f} minutes, without evaluations and checkpoints",
        f"memory: {found['peak_bytes'] * mib:,.0f} MiB at the highest, of which weights, gradient and "
        f"moments {found['optimizer_bytes'] * mib:,.0f} MiB",
    ]
    for step, batch in enumerate(found["first_batches"]):
        shown = [", ".join(map(str, batch[what][:8])) for what in ("contexts", "documents")]
        more = ["" if len(batch[what]) <= 8 else ", ..." for what in ("contexts", "documents")]
        lines.append(f"step {step + 1}: contexts {shown[0]}{more[0]} (documents {shown[1]}{more[1]})")
    return "\n".join(lines)
