"""What the results of a sweep say: best accuracy over learning rates, and how much hangs on them."""

import statistics

from recallgap.mqar.plan import VARIED
from recallgap.report.markup import Bullets, Heading, Paragraph, Picture
from recallgap.report.tables import Table

FIGURE = "accuracy"


def position(varied, row):
    """Where a result stands on the axis of what its sweep varies."""
    if varied == "distances":
        return len(row["distances"])
    if varied == "range":
        return max(row["distances"])
    return row["width"] if varied == "width" else row["n_pairs"]


def panel(varied, row):
    """What is the same in a panel of the figure: the task where widths vary, else the width."""
    if varied != "width":
        return f"d = {row['width']}"
    name, distances = f"N = {row['context_len']}, D = {row['n_pairs']}", row["distances"]
    return f"{name}, {len(distances)} distances to {max(distances)}" if distances else name


def summary(varied, rows):
    """A dict for each model at each place of each panel, in the order of the results.

    The accuracy of a learning rate is its mean over seeds; `best` is the highest of them, `worst` the lowest.
    A diverged training counts as accuracy 0.
    """
    groups = {}
    for row in rows:
        key = panel(varied, row), row["model"], position(varied, row)
        groups.setdefault(key, {}).setdefault(row["learning_rate"], []).append(row)
    return [
        {"panel": name, "model": model, "at": at, **_over_learning_rates(by_rate)}
        for (name, model, at), by_rate in groups.items()
    ]


def _over_learning_rates(by_rate):
    mean_of = {
        rate: statistics.fmean(row["accuracy"] or 0.0 for row in rows) for rate, rows in by_rate.items()
    }
    best = max(mean_of, key=mean_of.get)
    rows = [row for members in by_rate.values() for row in members]
    return {
        "best": mean_of[best],
        "worst": min(mean_of.values()),
        "learning_rate": best,
        "steps": max(row["steps"] for row in by_rate[best]),
        "runs": len(rows),
        "diverged": sum(row["diverged"] for row in rows),
    }


def best_table(varied, rows):
    """A row a model and panel, a column a place: the best accuracy and, in brackets, the worst and the best
    learning rate."""
    found = summary(varied, rows)
    places = sorted({entry["at"] for entry in found})
    cell_of = {(entry["panel"], entry["model"], entry["at"]): _cell(entry) for entry in found}
    pairs = dict.fromkeys((entry["panel"], entry["model"]) for entry in found)
    names = {"width": "d = {}", "distances": "{} distances", "pairs": "D = {}", "range": "up to {}"}
    header = ["Task" if varied == "width" else "Width", "Model", *(names[varied].format(p) for p in places)]
    body = [
        [name, model, *(cell_of.get((name, model, place), "-") for place in places)] for name, model in pairs
    ]
    return Table(header, body, left=2)


def _cell(entry):
    diverged = f", {entry['diverged']} diverged" if entry["diverged"] else ""
    best, worst = f"{100 * entry['best']:.1f} %", f"{100 * entry['worst']:.1f}"
    return f"{best} [{worst}; {entry['learning_rate']:g}{diverged}]"


def page(plan, rows):
    """The blocks of the sweep's page."""
    training = plan.training
    places = "each width" if plan.varied == "width" else f"each {VARIED[plan.varied]}"
    rates = ", ".join(f"{rate:g}" for rate in plan.learning_rates)
    return [
        Heading("Multi-query associative recall", 1),
        Paragraph(
            f"Accuracy at the queries of {training.eval_sequences:,} held-out sequences, at {places}: that "
            "of the best learning rate; below it, in brackets, that of the worst and the best learning rate."
        ),
        best_table(plan.varied, rows),
        Picture(FIGURE, "The best learning rate (line), and best to worst (band)."),
        Bullets(
            [
                f"trainings: {len(rows)}; learning rates {rates}; seeds {', '.join(map(str, plan.seeds))}",
                f"at most {training.epochs} epochs of {training.epoch_sequences:,} sequences, "
                f"{'new at every step' if training.fresh else 'the same in each'}; a training ends where its "
                f"accuracy is above {training.stop_at:g}",
                f"{training.n_layers} layers ({training.n_attention_layers} of attention), state mixer "
                f"{training.state_mixer}",
                "vocabulary "
                + ", ".join(dict.fromkeys(f"{task.vocab_size:,}" for task in plan.tasks))
                + ("; a single seed says nothing about the spread between seeds" * (len(plan.seeds) == 1)),
            ]
        ),
    ]
