"""Pretraining runs -> curves: losses by tokens seen, the gap to the first run, and when recall appears.

A gap is taken at equal numbers of training tokens seen; nothing is interpolated. Every number here is of one
evaluation of one training run, so it has no interval.
"""

from dataclasses import dataclass

from recallgap.errors import ArtifactError, ConfigError
from recallgap.report import text
from recallgap.report.runs import SLICES, TrainingRun, open_run

RECALL_MARGIN = 1.0
"""Nats by which AR hits must be easier than rare first occurrences before recall has appeared.

Both are bigrams that are as rare in training; a repeated one is somewhat easier even for a model that cannot
recall, since it fits the subject of the text, so a difference of a few tenths of a nat shows nothing.
"""
MIN_GAP = 0.02
"""Nats; a gap nearer to 0 has no share, which would be a quotient of two small numbers."""
COMPARED = {"inputs": ("eval_corpus", "labels"), "config": ("context_len", "max_train_count")}
"""What decides which tokens an evaluation scores and which of them are AR hits."""


@dataclass(frozen=True)
class GapPoint:
    """The gap of a run to the first one after the same number of training tokens."""

    tokens: int
    gap: float
    """Nats per scored token."""
    contribution: float
    """The part of it that AR hits make: nats summed over AR hits, per scored token."""

    @property
    def share(self):
        """The part of the gap that is due to AR hits; None where the gap is less than MIN_GAP from 0."""
        return self.contribution / self.gap if abs(self.gap) >= MIN_GAP else None


@dataclass(frozen=True)
class Curves:
    """Runs that were evaluated on the same tokens; the first is the baseline."""

    runs: list[TrainingRun]

    def gaps(self, number):
        """A `GapPoint` for every evaluation of run `number` whose tokens seen the baseline has too."""
        base_at = {evaluation.tokens: evaluation for evaluation in self.runs[0].evaluations}
        shared = [found for found in self.runs[number].evaluations if found.tokens in base_at]
        return [_gap_point(base_at[found.tokens], found) for found in shared]

    @property
    def last_common(self):
        """Tokens seen at the last evaluation that all runs share; None where they share none."""
        tokens = [{evaluation.tokens for evaluation in run.evaluations} for run in self.runs]
        return max(set.intersection(*tokens), default=None)

    def at_table(self, number):
        """The evaluation of a run that the table shows: the last common one, or else its own last."""
        last = self.last_common
        found = self.runs[number].evaluations
        return found[-1] if last is None else next(e for e in found if e.tokens == last)

    def gap_at_table(self, number):
        """The `GapPoint` of the table; None for the baseline and where the runs share no evaluation."""
        last = self.last_common
        return next((point for point in self.gaps(number) if number and point.tokens == last), None)

    @property
    def notes(self):
        """What a reader must know before comparing the runs, in sentences."""
        notes = [note for run in self.runs for note in run.notes]
        last, ends = self.last_common, {run.name: run.evaluations[-1].tokens for run in self.runs}
        if last is None:
            notes.append(
                "The runs share no evaluation at equal tokens seen: the table shows the last evaluation of "
                "each, which are not comparable."
            )
        elif max(ends.values()) > last:
            later = [f"{name} {tokens:,}" for name, tokens in ends.items() if tokens > last]
            notes.append(
                f"The table shows the last evaluation that all runs share, at {last:,} tokens. Some have "
                f"later ones: {', '.join(later)}."
            )
        for number, run in enumerate(self.runs[1:], 1):
            if len(self.runs) > 2 and not self.gaps(number):
                notes.append(f"{run.name} and {self.runs[0].name} share no evaluation: no gap is drawn.")
        if len({run.inputs.get("corpus") for run in self.runs}) > 1:
            notes.append("The runs were trained on different corpora.")
        return notes


def _gap_point(base, model):
    """Sums are subtracted before they are divided: both runs score the same tokens."""
    n = base.sums["all"][0]
    gap, contribution = ((model.sums[name][1] - base.sums[name][1]) / n for name in ("all", "ar_hit"))
    return GapPoint(model.tokens, gap, contribution)


def recall_appears(run):
    """Tokens seen at the first evaluation with AR hits RECALL_MARGIN nats below rare first occurrences.

    None where there is no such evaluation yet.
    """
    for evaluation in run.evaluations:
        first, hit = evaluation.loss("rare_first"), evaluation.loss("ar_hit")
        if first is not None and hit is not None and first - hit >= RECALL_MARGIN:
            return evaluation.tokens
    return None


def open_curves(paths, *, names=None):
    """Read pretraining runs, the baseline first; ArtifactError where they cannot be compared.

    names: one a run, in the same order (default: the names of the folders).
    """
    if names and len(names) != len(paths):
        raise ConfigError(
            f"drawing {len(paths)} run(s): {len(names)} name(s) are given; give --name once a run, in order"
        )
    named = zip(paths, names or [None] * len(paths), strict=True)
    runs = [open_run(path, name=name) for path, name in named]
    for number, run in enumerate(runs):
        if run.name in [other.name for other in runs[:number]]:
            raise ConfigError(f"two runs are called '{run.name}'; name each with --name, in order")
        if not run.evaluations:
            raise ArtifactError(
                f"drawing the run {run.name}: it has no evaluation yet ({len(run.training):,} lines of "
                "training); wait for its first evaluation, or leave it out"
            )
    for run in runs:
        _refuse_other_tokens(runs[0], run)
    return Curves(runs)


def _refuse_other_tokens(base, run):
    """ArtifactError unless all evaluations of both runs are of the same tokens."""
    doing = f"comparing the runs {base.name} and {run.name}"
    for section, keys in COMPARED.items():
        for key in keys:
            old, new = (getattr(part, section).get(key) for part in (base, run))
            if old != new:
                raise ArtifactError(
                    f"{doing}: their evaluations differ: {key} is {_brief(old)} for {base.name}, "
                    f"{_brief(new)} for {run.name}; draw runs evaluated on the same tokens"
                )
    for name in SLICES:
        expected = base.evaluations[0].sums[name][0]
        for evaluation in run.evaluations:
            if evaluation.sums[name][0] != expected:
                raise ArtifactError(
                    f"{doing}: {base.name} has {expected:,} tokens in slice {name}, but {run.name} has "
                    f"{evaluation.sums[name][0]:,} at {evaluation.tokens:,} training tokens; "
                    "draw runs evaluated on the same tokens"
                )


def _brief(value):
    shown = text.shown(value)
    return shown if len(shown) <= 20 else f"{shown[:16]}..."
