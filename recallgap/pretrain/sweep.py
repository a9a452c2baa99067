"""One recipe under several settings: which is best, and how much hangs on the choice.

A setting with several values, `learning_rate=1e-3,3e-3`, opens a grid; each point is a pretraining of its own
in a folder of its own, so that a sweep which was interrupted goes on where it stopped.
"""

import itertools
import json
import math
import os
import statistics
from pathlib import Path

from recallgap.errors import ArtifactError, ConfigError, TrainingError
from recallgap.pretrain.checks import check_corpora
from recallgap.pretrain.recipe import resolved
from recallgap.pretrain.run import pretrain
from recallgap.progress import note

TABLE = "sweep.json"


def grid(settings):
    """The points of a grid, [(name of its folder, its settings)]; ConfigError where nothing is varied.

    >>> [name for name, _ in grid(["learning_rate=1e-3,3e-3", "tokens=10"])]
    ['learning_rate=1e-3', 'learning_rate=3e-3']
    """
    varied, choices = [], []
    for setting in settings:
        name, equals, text = setting.partition("=")
        values = [value.strip() for value in text.split(",")]
        if len(values) != len(set(values)) or "" in values[1:]:
            raise ConfigError(f"--set {setting}: its values must all be there and differ")
        choices.append([f"{name}{equals}{value}" for value in values])
        if len(values) > 1:
            varied.append(name)
    if not varied:
        raise ConfigError(
            "a sweep varies a setting: give one several values, --set learning_rate=1e-3,3e-3,1e-2"
        )
    points = list(itertools.product(*choices))
    return [(",".join(s for s in point if s.partition("=")[0] in varied), list(point)) for point in points]


def sweep(recipe, settings, corpus, eval_corpus, out, *, labels=None, thresholds=None, options=None):
    """Pretrain `recipe` at every point of a grid into a folder of `out`; returns the table, JSON values.

    thresholds: max_train_count or rate_per_million of the labels that are made where `labels` is None. A run
    whose loss is not finite is a row of the table, without losses.
    """
    from recallgap.recall import LabelConfig

    out = Path(out)
    points = [(name, values, *resolved(recipe, values)) for name, values in grid(settings)]
    _check(out, recipe, settings, points, corpus, eval_corpus)
    rows = []
    for number, (name, values, model_config, config) in enumerate(points, 1):
        note(f"sweep: {number} of {len(points)}: {name}")
        label_config = LabelConfig(context_len=config.context_len, **(thresholds or {}))
        try:
            made = pretrain(
                model_config, corpus, eval_corpus, out / name,
                config=config, labels=labels, label_config=label_config, options=options,
            )  # fmt: skip
        except TrainingError as error:
            note(str(error))
            made = None
        rows.append({"run": name, "settings": values, **_losses(made)})
    table = {"recipe": recipe, "settings": settings, "rows": rows, "by_setting": _by_setting(rows)}
    half = out / f"{TABLE}.half"
    half.write_text(json.dumps(table, indent=1) + "\n")
    os.rename(half, out / TABLE)
    return table


def _check(out, recipe, settings, points, corpus, eval_corpus):
    """Refuse what some point would refuse, or a folder that is not of this sweep, before anything is run."""
    if (out / "meta.json").exists():
        raise ArtifactError(f"sweeping {recipe} into {out}: that is an artifact; choose another output")
    if (out / TABLE).exists():
        found = json.loads((out / TABLE).read_text())
        if (found["recipe"], found["settings"]) != (recipe, settings):
            there = " ".join([found["recipe"], *found["settings"]])
            raise ArtifactError(
                f"sweeping {recipe} into {out}: a sweep of {there} is there; choose another output"
            )
    for number, (name, _, model_config, config) in enumerate(points):
        check_corpora(model_config, corpus, eval_corpus, config)
        for earlier, _, other_model, other in points[:number]:
            if config == other and model_config.to_dict() == other_model.to_dict():
                raise ConfigError(f"the points {earlier} and {name} of the sweep are the same")


def _losses(made):
    if made is None:
        return {"tokens": None, "losses": None}
    last = [entry for entry in made.log() if entry["event"] == "evaluation"][-1]
    losses = {name: s["loss_sum"] / s["n"] for name, s in last["slices"].items() if s["n"]}
    return {"tokens": last["tokens"], "losses": losses}


def _by_setting(rows):
    """For each value of each varied setting: its runs, and best, mean and worst loss of those that ended."""
    found = {}
    for row in rows:
        for setting in row["run"].split(","):
            found.setdefault(setting, []).append(row)
    table = []
    for setting, members in found.items():
        losses = [row["losses"]["all"] for row in members if row["losses"]]
        entry = {"setting": setting, "runs": len(members), "ended": len(losses)}
        if losses:
            entry |= {"best": min(losses), "mean": statistics.fmean(losses), "worst": max(losses)}
        table.append(entry)
    return table


def in_words(table):
    """The table as text: every run, best first, and the spread of each setting's values."""
    ended = sorted((row for row in table["rows"] if row["losses"]), key=lambda row: row["losses"]["all"])
    width = max(len(row["run"]) for row in table["rows"])
    lines = [
        f"{table['recipe']}: perplexity at the end",
        f"{'':{width}} {'all':>9} {'AR hits':>9} {'other':>9}",
    ]
    for row in ended:
        values = (row["losses"].get(name, math.nan) for name in ("all", "ar_hit", "other"))
        lines.append(f"{row['run']:{width}} " + " ".join(f"{math.exp(value):9.2f}" for value in values))
    lines += [f"{row['run']:{width}} the loss was not finite" for row in table["rows"] if not row["losses"]]
    lines.append("loss in nats per token by setting: best, mean, worst")
    for entry in table["by_setting"]:
        if entry["ended"]:
            values = " ".join(f"{entry[name]:9.4f}" for name in ("best", "mean", "worst"))
            lines.append(f"{entry['setting']:{width}} {values}  ({entry['ended']} of {entry['runs']} runs)")
    if ended:
        lines.append(f"best: {ended[0]['run']}")
    return "\n".join(lines)
