"""The whole chain in one call, each step an artifact made once: text in, AR perplexity and gap out."""

import re
from dataclasses import dataclass, replace
from pathlib import Path

from recallgap.corpus import BuildConfig, build_corpus, open_corpus
from recallgap.counts import count_ngrams, open_counts
from recallgap.errors import ConfigError
from recallgap.evaluate import EvaluateConfig, evaluate, find_checkpoint
from recallgap.progress import note
from recallgap.recall import LabelConfig, label
from recallgap.report import write_report
from recallgap.slices import compare


@dataclass(frozen=True, kw_only=True)
class Run:
    """One checkpoint and how it is run."""

    checkpoint: str
    """A Hugging Face folder, hub name or GGUF file."""
    name: str
    """What tables call it."""
    window: int | None = None
    """The model sees at most this many tokens (None: the whole context)."""

    @property
    def slug(self):
        """The name as a part of a folder name."""
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")


def runs_of(checkpoints):
    """A `Run` for each checkpoint (or Run), named after its folder; ConfigError where two names clash."""
    runs = [c if isinstance(c, Run) else Run(checkpoint=str(c), name=Path(c).stem) for c in checkpoints]
    slugs = [run.slug for run in runs]
    for run in runs:
        if slugs.count(run.slug) > 1:
            raise ConfigError(f"two checkpoints are called '{run.name}'; give each its own name")
    return runs


def ar_perplexity(
    checkpoints,
    *,
    corpus,
    out,
    train_corpus=None,
    counts=None,
    build=None,
    labels=None,
    evaluation=None,
    common=False,
):
    """AR perplexity of checkpoints on a corpus, and their gap to the first of them; returns the `Gap`.

    corpus, train_corpus: corpus folders, or text that is built with `build` (default: the first checkpoint's
    tokenizer). counts: a counts artifact in place of train_corpus. labels: a `LabelConfig`; evaluation: an
    `EvaluateConfig` with the same contexts. common: see `compare`. Everything is kept in `out`, and what is
    there already is not made again; the report is in `out`/report.
    """
    out, runs = Path(out), runs_of(checkpoints)
    labels = labels or LabelConfig()
    evaluation = evaluation or EvaluateConfig(policy=labels.policy, context_len=labels.context_len)
    if (train_corpus is None) == (counts is None):
        raise ConfigError("AR hits need training counts: give either a training corpus or a counts artifact")
    if (labels.policy, labels.context_len) != (evaluation.policy, evaluation.context_len):
        raise ConfigError("labels and evaluation must cut the corpus into the same contexts")
    build = build or BuildConfig(tokenizer=runs[0].checkpoint)
    evaluated = _corpus(corpus, out / "corpus", build)
    if counts is None:
        trained = _corpus(train_corpus, out / "train-corpus", build)
        counts = count_ngrams([trained], out / "counts", for_corpus=evaluated, orders=(labels.order,))
    else:
        counts = open_counts(counts)
    labelled = label(evaluated, counts, out / "labels", config=labels)
    losses = []
    for run in runs:
        config = replace(evaluation, window=run.window)
        files = find_checkpoint(run.checkpoint, name=run.name)
        losses.append(evaluate(files, evaluated, out / f"losses-{run.slug}", config=config).path)
    gap = compare(losses[0], losses[1:], labelled, out=out / "gap", common=common)
    write_report(gap, out / "report")
    note(f"report: {out / 'report'}")
    return gap


def _corpus(source, folder, build):
    """Open `source` if it is a corpus folder, else build a corpus from it as text."""
    if (Path(source) / "meta.json").exists():
        return open_corpus(source)
    return build_corpus([source], folder, config=build)
