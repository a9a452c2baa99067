"""Small pretraining runs made from lines of training.jsonl, for the tests of their report."""

import json

from recallgap.staging import stage

N = {"all": 128, "ar_hit": 16, "other": 112, "rare_first": 32}  # powers of two: means of whole sums are exact
CONFIG = {"learning_rate": 0.003, "context_len": 64, "max_train_count": 50, "model": {"d_model": 8}}
INPUTS = {"corpus": "corpus-a", "eval_corpus": "eval-a", "labels": "labels-a"}


def evaluation(tokens, *, hit, other, first, **more):
    """An "evaluation" line from sums of losses over the tokens of the slices."""
    sums = {"all": hit + other, "ar_hit": hit, "other": other, "rare_first": first}
    slices = {name: {"n": N[name], "loss_sum": total} for name, total in sums.items()} | more
    return {"event": "evaluation", "step": tokens // 10, "tokens": tokens, "slices": slices}


def train(tokens, loss=3.0):
    return {"event": "train", "step": tokens // 10, "tokens": tokens, "loss": loss, "learning_rate": 0.001}


def log_of(lines):
    return "".join(json.dumps(line) + "\n" for line in lines)


def unfinished(folder, name, lines, *, config=CONFIG, inputs=INPUTS):
    """A run in the making, called by the place it will have; `lines` may be the text of its log."""
    staging = folder / f".{name}.partial"
    staging.mkdir(parents=True)
    plan = {"kind": "checkpoint", "format_version": 1, "config": config, "inputs": inputs}
    (staging / "plan.json").write_text(json.dumps(plan))
    (staging / "training.jsonl").write_text(lines if isinstance(lines, str) else log_of(lines))
    return folder / name


def finished(folder, name, lines, *, config=CONFIG, inputs=INPUTS):
    plan = {"kind": "checkpoint", "config": config, "inputs": inputs}
    with stage(folder / name, **plan) as staging, staging.write("training.jsonl") as path:
        path.write_text(log_of(lines))
        staging.results = {"n_parameters": 2_500_000}
    return folder / name


BASE = [
    train(50),
    evaluation(100, hit=64, other=448, first=160),  # mean 4; hits 4, rare first 5: recall by exactly 1 nat
    evaluation(200, hit=32, other=336, first=160),
    evaluation(300, hit=16, other=300, first=150),
]
SLOW = [
    train(50, 4.0),
    train(150),
    evaluation(100, hit=96, other=384, first=128),  # mean 3.75: ahead of the baseline
    evaluation(200, hit=80, other=352, first=128),  # gap 64/128, of which hits 48/128
    evaluation(250, hit=70, other=320, first=128),
]
SLOW.sort(key=lambda line: line["tokens"])
