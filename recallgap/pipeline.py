"""The whole chain in one call, each step an artifact made once: text in, AR perplexity and gap out."""

import re
from dataclasses import dataclass, replace
from pathlib import Path

from recallgap.corpus import BuildConfig, build_corpus, open_corpus
from recallgap.counts import count_ngrams, open_counts
from recallgap.errors import CheckpointError, ConfigError
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
    """A `Run` for each checkpoint (or Run), named after its folder, and where these clash after the folder
    above too; ConfigError where that is not enough."""
    stems = [None if isinstance(c, Run) else Path(c).stem for c in checkpoints]
    runs = []
    for given, stem in zip(checkpoints, stems, strict=True):
        name = stem if stems.count(stem) == 1 else f"{Path(str(given)).parent.name}/{stem}"
        runs.append(given if isinstance(given, Run) else Run(checkpoint=str(given), name=name))
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
        given = "neither" if counts is None else "both"
        raise ConfigError(
            f"AR hits need training counts: give either a training corpus or a counts artifact, not {given}"
        )
    if (labels.policy, labels.context_len) != (evaluation.policy, evaluation.context_len):
        raise ConfigError("labels and evaluation must cut the corpus into the same contexts")
    found = [find_checkpoint(run.checkpoint, name=run.name) for run in runs]
    _check_tokenizers(found)
    build = build or BuildConfig(tokenizer=runs[0].checkpoint)
    evaluated = _corpus(corpus, out / "corpus", build)
    if counts is None:
        trained = _corpus(train_corpus, out / "train-corpus", build)
        counts = count_ngrams([trained], out / "counts", for_corpus=evaluated, orders=(labels.order,))
    else:
        counts = open_counts(counts)
    labelled = label(evaluated, counts, out / "labels", config=labels)
    losses = []
    for run, files in zip(runs, found, strict=True):
        config = replace(evaluation, window=run.window)
        losses.append(evaluate(files, evaluated, out / f"losses-{run.slug}", config=config).path)
    gap = compare(losses[0], losses[1:], labelled, out=out / "gap", common=common)
    write_report(gap, out / "report")
    note(f"report: {out / 'report'}")
    return gap


def _check_tokenizers(found):
    """One corpus serves all checkpoints only if they share a tokenizer; told before any work is done."""
    known = [files for files in found if files.tokenizer_fingerprint]
    for files in known[1:]:
        if files.tokenizer_fingerprint != known[0].tokenizer_fingerprint:
            raise CheckpointError(
                f"comparing {known[0].name} with {files.name}: their tokenizers differ "
                f"({known[0].tokenizer_fingerprint[:12]} and {files.tokenizer_fingerprint[:12]}), "
                "so their losses are of different tokens; compare models of one tokenizer"
            )


def _corpus(source, folder, build):
    """Open `source` if it is a corpus folder, else build a corpus from it as text."""
    if (Path(source) / "meta.json").exists():
        return open_corpus(source)
    return build_corpus([source], folder, config=build)
