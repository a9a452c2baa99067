"""Labels and losses -> gap: the checks that the inputs belong together, and the artifact."""

import itertools
import json
from pathlib import Path

from recallgap.errors import ArtifactError, ConfigError
from recallgap.recall import open_labels
from recallgap.slices.definitions import SLICES
from recallgap.slices.estimates import document_record, family_record, warnings_of
from recallgap.slices.gap import Gap, open_gap
from recallgap.slices.intervals import sign_flip_p
from recallgap.slices.losses import open_losses
from recallgap.slices.sums import scan
from recallgap.staging import stage, up_to_date

SIGN_FLIPS, SEED = 9999, 0
DISTANCE_BINS_PER_DECADE = 10


def compare(base, models, labels, *, common=False, level=0.95, out=None, overwrite=False):
    """How far `models` are behind `base`, slice by slice, with intervals; returns the `Gap`.

    base, models: `Losses` or their folders; no models gives the losses of `base` alone. labels: `Labels` or
    their folder. common: where the models score different tokens, use those that all of them score (without
    it, refuse). level: of all intervals. out: the gap folder to write; without it nothing is written.
    """
    if not 0 < level < 1:
        raise ConfigError(f"level is {level}, but a confidence level lies between 0 and 1, such as 0.95")
    labels = open_labels(labels) if isinstance(labels, str | Path) else labels
    losses = [open_losses(x) if isinstance(x, str | Path) else x for x in (base, *models)]
    refuse_strangers(losses, labels)
    config = {
        "common": common,
        "level": level,
        "sign_flips": SIGN_FLIPS,
        "seed": SEED,
        "slices": list(SLICES),
    }
    inputs = {"labels": labels.fingerprint, "baseline": losses[0].fingerprint}
    inputs |= {f"model-{number}": model.fingerprint for number, model in enumerate(losses[1:], 1)}
    if out is None:
        return Gap(_measure(labels, losses, config))
    plan = {"kind": "gap", "config": config, "inputs": inputs}
    if overwrite or not up_to_date(out, **plan):
        with stage(out, **plan, overwrite=overwrite) as staging:
            record = _measure(labels, losses, config)
            with staging.write("gap.json") as path:
                path.write_text(json.dumps(record, indent=1, allow_nan=False) + "\n")
            staging.results = _summary(Gap(record))
    return open_gap(out)


def refuse_strangers(losses, labels):
    """ArtifactError unless all losses are of the labels' corpus and contexts, and of one dtype and prefix."""
    for model in losses:
        if model.results["n_scored"] == 0:
            raise ArtifactError(
                f"comparing {model.path}: not one of its {labels.results['n_tokens']} tokens is scored"
            )
        pair = (f"the losses {model.path}", f"the labels {labels.path}")
        _same(
            "the corpus", pair, model.inputs["corpus"], labels.inputs["corpus"], "`recallgap label` it first"
        )
        for key in ("tokens_sha256", "n_tokens"):
            _same(key, pair, model.results[key], labels.results[key], "Evaluate and label the same corpus")
        for key in ("policy", "context_len"):
            _same(key, pair, model.config[key], labels.config[key], "Label the contexts that the model sees")
        pair = (f"the losses {losses[0].path}", f"the losses {model.path}")
        for key in ("dtype", "prefix"):
            _same(key, pair, losses[0].config[key], model.config[key], "Evaluate both models alike")


def _same(what, pair, a, b, remedy):
    if a != b:
        raise ArtifactError(f"comparing: {what} is {a} in {pair[0]}, but {b} in {pair[1]}. {remedy}")


def _measure(labels, losses, config):
    """The gap record: JSON values, everything that tables, figures and the page need."""
    families = {name: define(labels) for name, define in SLICES.items()}
    found = scan(labels, losses, families, common=config["common"])
    if found.n_used == 0:
        paths = ", ".join(str(model.path) for model in losses)
        raise ArtifactError(f"comparing {paths}: there is no token that all of them score")
    whole = found.sums["all"]
    record = {
        "config": config,
        "models": [
            _model_record(*row, found.n_used)
            for row in zip(display_names(losses), losses, found.n_scored, strict=True)
        ],
        "labels": _origin(labels),
        "documents": document_record(whole.n_DK[:, 0]),
        "families": {
            name: family_record(family, found.sums[name], config["level"])
            for name, family in families.items()
        },
        "p_no_gap": [
            sign_flip_p(loss_DK[:, 0] - whole.loss_MDK[0, :, 0], config["sign_flips"], config["seed"])
            for loss_DK in whole.loss_MDK[1:]
        ],
        "hit_distances": histogram(found.hits_by_distance),
    }
    return record | {"warnings": warnings_of(record)}


def display_names(losses):
    """What tables call the models: their names; where these clash, with the window, else the fingerprint."""
    names = [model.name for model in losses]
    windows = [model.config["window"] for model in losses]
    names = [
        f"{name} (window {window})" if window and names.count(name) > 1 else name
        for name, window in zip(names, windows, strict=True)
    ]
    prints = [model.fingerprint[:8] for model in losses]
    pairs = zip(names, prints, strict=True)
    return [f"{name} ({print_})" if names.count(name) > 1 else name for name, print_ in pairs]


def _model_record(name, model, n_scored, n_used):
    return _origin(model) | {
        "name": name,
        "n_parameters": model.results.get("n_parameters"),
        "n_scored": n_scored,
        "n_left_out": n_scored - n_used,
    }


def _origin(opened):
    origin = {"fingerprint": opened.fingerprint}
    return origin | {key: getattr(opened, key) for key in ("config", "inputs", "results")}


def histogram(counts_by_value):
    """Exact counts in log-spaced bins: bin b holds the values edges[b] <= v < edges[b + 1].

    >>> histogram([0, 5, 2, 1])
    {'edges': [1, 2, 3, 4], 'counts': [5, 2, 1]}
    """
    top, edges, step = len(counts_by_value), [1], 0
    while edges[-1] < top:
        step += 1
        edge = round(10 ** (step / DISTANCE_BINS_PER_DECADE))
        if edge > edges[-1]:
            edges.append(edge)
    pairs = itertools.pairwise(edges)
    return {"edges": edges, "counts": [int(sum(counts_by_value[low:high])) for low, high in pairs]}


def _summary(gap):
    """The `results` of the artifact: the numbers one looks for first."""
    share = {row["model"]: row["ar_hit_share"].estimate for row in gap.table()[1:]}
    return {
        "n_tokens": gap.slices("all")["all"]["n"],
        "n_documents": gap.record["documents"]["n"],
        "gaps": {row["model"]: row["gap"].estimate for row in gap.table()[1:]},
        "ar_hit_shares": share,
    }
