"""Turn a finished run into a shipped checkpoint: pretrained/NAME.

    python pretrained/ship.py RUN --corpus VALID --counts COUNTS --sweep SWEEP

Weights are stored in bfloat16 where that moves the loss by less than MAX_CHANGE nats a token, over all tokens
and over AR hits, else as they are. README.md of the folder is the card. SWEEP: sweep.json, or a folder of
runs that differ in their learning rate.
"""

import argparse
import json
import math
import shutil
import tempfile
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

import recallgap as rg
from recallgap.artifact import open_artifact
from recallgap.evaluate import EvaluateConfig
from recallgap.recall import LabelConfig
from recallgap.report.curve_page import write_curves
from recallgap.report.curves import open_curves
from recallgap.staging import stage

HERE = Path(__file__).parent
MAX_CHANGE = 1e-3
THRESHOLDS = (100, 1250)
SHIPPED = (
    "README.md",
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "recall-curve.png",
    "tokenizer.json",
    "tokenizer_config.json",
    "training.jsonl",
)


def losses_by_slice(checkpoint, corpus, labels, folder, context_len):
    """{slice: (tokens, loss)} of all, ar_hit and other, for each threshold of `labels`."""
    config = EvaluateConfig(context_len=context_len, device="cpu")
    losses = rg.evaluate(str(checkpoint), corpus, folder / "losses", config=config)
    found = {}
    for threshold, labelled in labels.items():
        gap = rg.compare(losses.path, [], labelled, out=folder / f"gap-{threshold}")
        slices = {**gap.slices("all"), **gap.slices("recall")}
        for name, part in slices.items():
            found[threshold, name] = (part["n"], part["models"][0]["loss"]["estimate"])
    return found


def rounded(source, target):
    """Copy a checkpoint with its weights in bfloat16."""
    shutil.copytree(source, target)
    with safe_open(source / "model.safetensors", "pt") as file:
        weights = {name: file.get_tensor(name).to(torch.bfloat16) for name in file.keys()}  # noqa: SIM118
    save_file(weights, target / "model.safetensors", metadata={"format": "pt"})
    settings = json.loads((target / "config.json").read_text())
    (target / "config.json").write_text(json.dumps({**settings, "dtype": "bfloat16"}, indent=2) + "\n")


def write_folder(target, run, source, stored):
    """The shipped folder: an artifact like the run, with the weights as they are stored."""
    plan = {"kind": run.meta["kind"], "config": run.config, "inputs": run.inputs}
    with stage(target, **plan, overwrite=True) as staging:
        for file in SHIPPED:
            with staging.write(file) as half:
                shutil.copyfile(source / file, half)
        staging.results = {**run.results, "stored": stored, "run": run.fingerprint}
        staging.run = json.loads((run.path / "run.json").read_text())


def card(run, name, before, after, agrees, sweep):
    """README.md: what the checkpoint is, how it was made and what it can do."""
    losses = after if agrees else before
    config, results = run.config, run.results
    mixers = [layer["mixer"] for layer in config["model"]["layers"]]
    speed = json.loads((run.path / "run.json").read_text())
    change = max(abs(after[key][1] - before[key][1]) for key in before)
    stored = f"bfloat16, which moved the losses below by at most {change:.1e} nats"
    if not agrees:
        stored = f"float32, as bfloat16 would have moved the losses below by up to {change:.1e} nats"
    lines = [
        f"# {name}",
        "",
        f"A causal language model of {results['n_parameters']:,} parameters (layers: {', '.join(mixers)}; "
        f"width {config['model']['d_model']}), trained from scratch to study where architectures differ. It "
        "is far too small to be of use for anything else.",
        "",
        f"- **Data**: {results['tokens']:,} tokens of the mini-Pile's train text (`pretrained/minipile`), "
        f"{results['epochs']:.2f} epochs, in contexts of {config['context_len']} tokens, in the order of "
        f"data_seed {config['data_seed']}, which all shipped checkpoints share. "
        f"{results['shared_documents']} documents of the evaluation split stand in it.",
        f"- **Training**: AdamW, {config['batch_size']} contexts a step, {config['schedule']} schedule, "
        f"highest learning rate {config['learning_rate']:g}, {config['precision']} autocast, seed "
        f"{config['seed']}. {sweep}",
        f"- **Made in** {speed['wall_seconds'] / 60:.0f} minutes on {speed['device']}, {speed['threads']} "
        f"thread(s), {speed['tokens_per_second']:,.0f} tokens/s, on a machine that did other work as well.",
        f"- **Weights**: {stored}.",
        "",
        "Perplexity on `pretrained/minipile/valid.jsonl.zst`, each token given what precedes it in its "
        "context; an AR hit's bigram occurs at most so often in the train text:",
        "",
        "| threshold | all | AR hits | other | AR hits of tokens |",
        "|---|---|---|---|---|",
    ]
    for threshold in THRESHOLDS:
        n_all, loss = losses[threshold, "all"]
        parts = [losses[threshold, part] for part in ("ar_hit", "other")]
        values = " | ".join(f"{math.exp(value):.2f}" for value in (loss, *(part[1] for part in parts)))
        lines.append(f"| {threshold} | {values} | {parts[0][0] / n_all:.1%} |")
    lines += [
        "",
        "![Perplexity while it was trained](recall-curve.png)",
        "",
        "`training.jsonl` has every training loss and evaluation, `meta.json` all settings.",
        "",
    ]
    return "\n".join(lines)


def sweep_line(path):
    """What the sweep of learning rates found, in a sentence."""
    if path.is_dir():
        runs = [open_artifact(folder, "checkpoint") for folder in sorted(path.iterdir()) if folder.is_dir()]
        found = [(run.config["learning_rate"], run.config["tokens"], last_loss(run)) for run in runs]
    else:
        table = json.loads(path.read_text())
        found = [
            (float(row["run"].partition("=")[2]), row["tokens"], row["losses"]["all"])
            for row in table["rows"]
            if row["losses"]
        ]
    tokens = sorted({tokens for _, tokens, _ in found})
    tried = ", ".join(f"{rate:g} ({math.exp(loss):.1f})" for rate, _, loss in sorted(found))
    return (
        f"The learning rate is the best of a sweep of runs of {tokens[0] / 1e6:g}M tokens, one seed each "
        f"(perplexity at its end): {tried}."
    )


def last_loss(run):
    lines = (run.path / "training.jsonl").read_text().splitlines()
    last = [entry for entry in map(json.loads, lines) if entry["event"] == "evaluation"][-1]["slices"]["all"]
    return last["loss_sum"] / last["n"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("run", type=Path)
    for name in ("corpus", "counts", "sweep"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    args = parser.parse_args()
    run, corpus, counts = (
        open_artifact(args.run, "checkpoint"),
        rg.open_corpus(args.corpus),
        rg.open_counts(args.counts),
    )
    name, context_len = args.run.name, run.config["context_len"]
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        labels = {}
        for threshold in THRESHOLDS:
            config = LabelConfig(context_len=context_len, max_train_count=threshold)
            labels[threshold] = rg.label(corpus, counts, folder / f"labels-{threshold}", config=config)
        before = losses_by_slice(args.run, corpus, labels, folder / "before", context_len)
        rounded(args.run, folder / name)
        after = losses_by_slice(folder / name, corpus, labels, folder / "after", context_len)
        agrees = all(abs(after[key][1] - before[key][1]) < MAX_CHANGE for key in before)
        source = folder / (name if agrees else "as-it-is")
        if not agrees:
            shutil.copytree(args.run, source)
        write_curves(open_curves([args.run]), folder / "curves")
        shutil.copyfile(folder / "curves" / "recall-curve.png", source / "recall-curve.png")
        (source / "README.md").write_text(card(run, name, before, after, agrees, sweep_line(args.sweep)))
        target = HERE / name
        write_folder(target, run, source, "bfloat16" if agrees else "float32")
    print((target / "README.md").read_text())


if __name__ == "__main__":
    main()
