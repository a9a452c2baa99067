"""The report of pretraining runs: what the page says, its tables, and the artifact."""

import json

from recallgap import __version__
from recallgap.artifact import open_artifact
from recallgap.report import text
from recallgap.report.curve_figures import FIGURES, LOG_FROM, SHARES_SHOWN, STRETCHES, draw
from recallgap.report.curves import MIN_GAP, RECALL_MARGIN, recall_appears
from recallgap.report.files import write_files
from recallgap.report.markup import Bullets, Heading, Paragraph, Picture
from recallgap.report.runs import SLICES
from recallgap.report.tables import Table, csv_text
from recallgap.slices.intervals import Interval
from recallgap.staging import stage, up_to_date

COLUMNS = {"overall": "all", "ar_hit": "ar_hit", "other": "other", "rare_first": "rare_first"}
"""Columns of the table and the slices they show; "overall" as in the table of a gap."""
MOST_NAMED = 4
"""Models that the title names one by one."""
CAPTIONS = {
    "recall-curve": (
        "Perplexity against training tokens seen. A line that falls on AR hits and not on rare first "
        "occurrences is recall forming."
    ),
    "recall-curve-seen": (
        "The same with AR hits counted in the training tokens seen so far: a bigram is rare while the model "
        "has rarely met it. Which tokens these are changes from one evaluation to the next."
    ),
    "gap-curve": (
        "The gap to {baseline} after the same number of training tokens, the part of it that AR hits make "
        f"(both in nats per scored token), and that part in per cent where the gap is at least {MIN_GAP} "
        f"nats from 0. Shares beyond {SHARES_SHOWN[0]} and {SHARES_SHOWN[1]} % are cut off."
    ),
    "loss-curve": (
        f"Training loss, averaged over at most {STRETCHES + 1} stretches that each grow by the same factor, "
        "and learning rate against training tokens seen."
    ),
}
STANDING_NOTES = (
    "There are no intervals here: each point is one number of one evaluation of one training run. It covers "
    "neither the choice of evaluation documents nor the training seed; recallgap compare gives intervals "
    "over documents for finished checkpoints.",
    "Learning rate and seed move such curves. A model that is behind at a number of tokens may be ahead at "
    "a later one.",
)


def write_curves(curves, out, *, overwrite=False):
    """Write the report of `Curves`; returns the opened artifact."""
    names = [run.name for run in curves.runs]
    inputs = {run.name: run.fingerprint for run in curves.runs}
    plan = {"kind": "report", "config": {"runs": names}, "inputs": inputs}
    if overwrite or not up_to_date(out, **plan):
        with stage(out, **plan, overwrite=overwrite) as staging:
            _write_files(curves, staging)
            staging.results = {"models": names}
    return open_artifact(out, "report")


def _write_files(curves, staging):
    figures = {name: figure for name in FIGURES if (figure := draw(name, curves))}
    texts = {
        "table.csv": csv_text(curve_rows(curves)),
        "table.json": json.dumps(curve_rows(curves), indent=1) + "\n",
        "evaluations.csv": csv_text(evaluation_rows(curves)),
    }
    if gaps := gap_rows(curves):
        texts["gaps.csv"] = csv_text(gaps)
    write_files(staging, figures, page_blocks(curves, list(figures)), texts)


def page_blocks(curves, figures):
    """The page as blocks (recallgap.report.markup). figures: names of the pictures that lie beside it."""
    baseline, *models = (run.name for run in curves.runs)
    who = ", ".join(models) if len(models) <= MOST_NAMED else f"{len(models)} models"
    title = f"{who} against {baseline}" if models else f"Recall of {baseline}"
    return [
        Heading(f"{title} during training", 1),
        *_measured(curves),
        Heading("Result"),
        curve_table(curves),
        *_reading(curves),
        Heading("Read with care"),
        Bullets([*curves.notes, *STANDING_NOTES]),
        Heading("Figures"),
        *(Picture(name, CAPTIONS[name].format(baseline=baseline)) for name in figures),
        Paragraph(
            f"Axes of tokens seen are logarithmic where they span more than a factor of {LOG_FROM}; an "
            "evaluation before the first step is then left out of the figures. evaluations.csv has every "
            "evaluation, gaps.csv every gap, as plain numbers."
        ),
        Heading("Provenance"),
        *_provenance(curves),
    ]


def _measured(curves):
    first = curves.runs[0]
    n, n_hits, _, n_first = (first.evaluations[0].sums[name][0] for name in SLICES)
    threshold = first.config.get("max_train_count")
    rare = "is rare in training"
    if threshold is not None:
        rare = f"occurs at most {threshold:,} times in the training corpus"
    yield Paragraph(
        f"While it is trained, a model is evaluated again and again on the same {n:,} tokens, each given "
        f"what precedes it in its context. {n_hits:,} of them ({text.percent(n_hits / n)}) are AR hits: the "
        f"last token of a bigram that occurred before in the same context and {rare}, so it can be "
        "recalled from the context, and hardly from training. All others are the other tokens."
    )
    yield Paragraph(
        f"{n_first:,} of the other tokens are rare first occurrences: the last token of a bigram that is as "
        "rare in training but has not occurred in the context before. They need memory of training, not "
        "recall, so they show what an AR hit costs a model that does not recall."
    )


def _reading(curves):
    yield Paragraph(
        "Each cell: perplexity, in parentheses its natural logarithm (the mean loss in nats per token). "
        "Recall appears: the training tokens seen at the first evaluation at which the mean loss on AR hits "
        f"is at least {RECALL_MARGIN:g} nat below that on rare first occurrences. A smaller difference may "
        "be there without recall, since a repeated bigram fits the subject of the text."
    )
    if len(curves.runs) > 1:
        yield Paragraph(
            f"Gap: the mean loss minus that of {curves.runs[0].name} after the same number of training "
            "tokens, in nats per token; nothing is interpolated. Gap due to AR hits: the gap summed over AR "
            "hits, divided by the gap summed over all tokens. It is negative or above 100 % where AR hits "
            f"and other tokens pull apart, and undefined where the gap is less than {MIN_GAP} nats from 0."
        )


def curve_table(curves):
    """A row a run, the baseline first, at the last evaluation that all runs share."""
    header = ["Model", "Parameters", "Tokens seen", "Overall", "AR hits", "Other tokens", "Rare first"]
    header += ["Gap (nats)", "Gap due to AR hits"] if len(curves.runs) > 1 else []
    rows = []
    for number, run in enumerate(curves.runs):
        found, appears = curves.at_table(number), recall_appears(run)
        losses = [text.perplexity(Interval(found.loss(name))) for name in COLUMNS.values()]
        parameters = "-" if run.n_parameters is None else text.compact(run.n_parameters)
        cells = [run.name, parameters, f"{found.tokens:,}", *losses]
        if len(curves.runs) > 1:
            point = curves.gap_at_table(number)
            share = point and ("undefined" if point.share is None else text.percent(point.share))
            cells += [text.signed(point and point.gap), share or "-"]
        rows.append([*cells, "not yet" if appears is None else f"{appears:,}"])
    return Table([*header, "Recall appears"], rows)


def curve_rows(curves):
    """The table as flat dicts of raw numbers; None where there is none."""
    rows = []
    for number, run in enumerate(curves.runs):
        found, point = curves.at_table(number), curves.gap_at_table(number)
        flat = {"model": run.name, "n_parameters": run.n_parameters, "tokens": found.tokens}
        for column, name in COLUMNS.items():
            flat |= {f"{column}_loss": found.loss(name), f"{column}_perplexity": found.perplexity(name)}
        rows.append(flat | _gap_columns(point) | {"recall_appears": recall_appears(run)})
    return rows


def evaluation_rows(curves):
    """Every slice of every evaluation of every run as flat dicts of raw numbers."""
    rows = []
    for run in curves.runs:
        for found in run.evaluations:
            for name, (n, total) in found.sums.items():
                place = {"model": run.name, "step": found.step, "tokens": found.tokens, "slice": name}
                sums = {"n_tokens": n, "loss_sum": total}
                rows.append(place | sums | {"loss": found.loss(name), "perplexity": found.perplexity(name)})
    return rows


def gap_rows(curves):
    """Every gap to the baseline at equal tokens seen as flat dicts of raw numbers."""
    numbers = range(1, len(curves.runs))
    points = [(curves.runs[number].name, point) for number in numbers for point in curves.gaps(number)]
    return [{"model": name, "tokens": point.tokens, **_gap_columns(point)} for name, point in points]


def _gap_columns(point):
    """The numbers of a `GapPoint`, None where there is none; named as in the table of a gap."""
    names = {"gap": "gap", "ar_hit_contribution": "contribution", "ar_hit_share": "share"}
    return {column: point and getattr(point, name) for column, name in names.items()}


def _provenance(curves):
    """Where every run comes from: what all share once, what differs in a row a run."""
    settings = [
        dict(_flat("config: ", run.config)) | dict(_flat("inputs: ", run.inputs)) for run in curves.runs
    ]
    keys = sorted({key for part in settings for key in part})
    shared = [key for key in keys if all(part.get(key) == settings[0].get(key) for part in settings)]
    rows = [["recallgap", __version__], *([key, _value(settings[0][key])] for key in shared)]
    yield Table(["What", "Value"], rows, left=2)
    differing = [key for key in keys if key not in shared]
    header = ["Model", "State", "Fingerprint", *differing]
    rows = []
    for run, part in zip(curves.runs, settings, strict=True):
        state = "finished" if run.finished else "unfinished"
        rows.append([run.name, state, run.fingerprint, *(_value(part.get(key)) for key in differing)])
    yield Table(header, rows, left=len(header))


def _flat(name, values):
    """(name, value) of all settings; those of a setting within one are named outer.inner."""
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from _flat(f"{name}{key}.", value)
        else:
            yield f"{name}{key}", value


def _value(value):
    return text.shown(value if isinstance(value, str) else json.dumps(value))
