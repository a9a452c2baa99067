"""A pretraining run as files: a finished checkpoint, or the staging folder of one in the making.

    training.jsonl   one JSON object a line, in the order of the steps
                     "train": tokens, loss (nats, mean since the last line), learning_rate
                     "evaluation": step, tokens, slices {name: {n, loss_sum (nats)}}
    meta.json        config and inputs of a finished run; plan.json has them while it is unfinished

tokens: training tokens seen so far.
"""

import hashlib
import json
import math
import os
import re
from dataclasses import dataclass
from pathlib import Path

from recallgap.artifact import fingerprint_of, open_artifact, staging_path
from recallgap.errors import ArtifactError
from recallgap.report.text import shown

LOG = "training.jsonl"
SLICES = ("all", "ar_hit", "other", "rare_first")
"""What every evaluation holds; "other" is all that is no AR hit, "rare_first" is a part of it."""
STAGING_NAME = re.compile(r"\.(.+)\.partial")


@dataclass(frozen=True)
class Evaluation:
    """Sums over the scored tokens of the evaluation corpus after `tokens` training tokens."""

    step: int
    tokens: int
    sums: dict
    """{slice: (tokens, loss in nats summed over them)}"""

    def loss(self, name):
        """Mean loss in nats per token of a slice; None where it holds no token."""
        n, total = self.sums[name]
        return total / n if n else None

    def perplexity(self, name):
        """exp of the loss; None where there is none, or where it is too large for a float."""
        loss = self.loss(name)
        return None if loss is None or loss >= 700 else math.exp(loss)


@dataclass(frozen=True)
class TrainingRun:
    """What training.jsonl says, and under which settings it was made."""

    name: str
    finished: bool
    config: dict
    inputs: dict
    fingerprint: str
    n_parameters: int | None
    """None while it is unfinished."""
    training: list
    """(tokens, loss, learning rate) of every "train" line; the loss of a run that broke may be NaN."""
    evaluations: list
    notes: list
    """What a reader must know of the file, in sentences."""


def kind_of(path):
    """Kind of the artifact at `path`, finished or in the making; ArtifactError where there is none."""
    folder, _, finished = _find(path)
    return open_artifact(folder, None).meta["kind"] if finished else _plan(folder).get("kind")


def open_run(path, *, name=None):
    """Read the run at `path`: a checkpoint, or one in the making, named by its place or its staging folder.

    name: how tables and figures call it (default: the folder's name).
    """
    folder, found_name, finished = _find(path)
    doing, name = f"reading the run {path}", shown(name or found_name)
    artifact = open_artifact(folder, "checkpoint") if finished else None
    plan = artifact.meta if artifact else _plan(folder)
    if plan.get("kind") != "checkpoint":
        raise ArtifactError(f"{doing}: it is of kind '{plan.get('kind')}', but a checkpoint is needed here")
    try:
        content = (folder / LOG).read_bytes()
    except FileNotFoundError:
        raise ArtifactError(
            f"{doing}: there is no {LOG} in {folder}, which `recallgap pretrain` writes as it goes; "
            "wait for its first lines, or name another run"
        ) from None
    if artifact:
        fingerprint, n_parameters = artifact.fingerprint, artifact.results.get("n_parameters")
    else:
        log_sha256 = hashlib.sha256(content).hexdigest()
        fingerprint, n_parameters = fingerprint_of({"plan": plan, LOG: log_sha256}), None
    records, cut_off = _records(f"{doing}: {LOG}", content)
    training, evaluations, others = _events(f"{doing}: {LOG}", records)
    notes = []
    if not finished:
        tokens = records[-1][1]["tokens"] if records else 0
        notes.append(f"{name} is unfinished; its last line is at {tokens:,} tokens.")
    if cut_off:
        notes.append(f"The last line of {name}'s {LOG} is cut off (it was being written); it is left out.")
    if others:
        notes.append(f"{name}: lines of other events are not shown ({', '.join(sorted(others))}).")
    if broken := sum(not math.isfinite(loss) for _, loss, _ in training):
        notes.append(f"{name}: {broken:,} training losses are not finite; the figures leave them out.")
    return TrainingRun(
        name=name,
        finished=finished,
        config=plan["config"],
        inputs=plan["inputs"],
        fingerprint=fingerprint,
        n_parameters=n_parameters,
        training=training,
        evaluations=evaluations,
        notes=notes,
    )


def _find(path):
    """(folder, name, finished) of what is called `path`: the folder itself, or its staging folder."""
    path = Path(os.path.abspath(path))  # "." has no name  # noqa: PTH100
    if path.is_file():
        raise ArtifactError(f"reading {path}: it is a file; name the folder of a gap or a run")
    if match := STAGING_NAME.fullmatch(path.name):
        return path, match[1], False
    occupied = path.is_dir() and any(path.iterdir())
    staging = staging_path(path)
    return (path, path.name, True) if occupied or not staging.is_dir() else (staging, path.name, False)


def _plan(folder):
    """kind, config and inputs of an unfinished artifact; one killed before its rename has meta.json."""
    for name in ("plan.json", "meta.json"):
        try:
            plan = json.loads((folder / name).read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            continue
        if isinstance(plan, dict) and {"kind", "config", "inputs"} <= plan.keys():
            return {key: plan[key] for key in ("kind", "config", "inputs")}
    raise ArtifactError(
        f"reading {folder}: neither plan.json nor meta.json says what it is, so it is no unfinished artifact"
    )


def _records(doing, content):
    """([(line number, object)], whether the last line is cut off); a cut is a last line without its end."""
    *lines, rest = content.split(b"\n")
    records = [(number, _parsed(line)) for number, line in enumerate(lines, 1)]
    cut_off = False
    if rest:
        last = _parsed(rest)
        cut_off = last is None
        records += [] if cut_off else [(len(lines) + 1, last)]
    for number, record in records:
        if record is None:
            raise ArtifactError(f"{doing}, line {number} is no JSON object; the file is damaged")
    return records, cut_off


def _parsed(line):
    """The JSON object of a line, or None where it is none."""
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def _events(doing, records):
    """The lines as (training, evaluations, {names of other events}), each checked."""
    training, evaluations, others = [], [], set()
    before, last_of = 0, {}
    for number, record in records:
        where, event = f"{doing}, line {number}", record.get("event")
        tokens = _number(where, record, "tokens", whole=True)
        if tokens < before or tokens == last_of.get(event):
            raise ArtifactError(
                f"{where}: {event!r} at {tokens:,} tokens comes after a line at {before:,}, but tokens seen "
                "only grow; the file is damaged, or two runs wrote into it"
            )
        before = last_of[event] = tokens
        if event == "train":
            loss = _number(where, record, "loss", finite=False)
            training.append((tokens, loss, _number(where, record, "learning_rate")))
        elif event == "evaluation":
            step = _number(where, record, "step", whole=True)
            evaluations.append(Evaluation(step, tokens, _sums(where, record.get("slices"))))
        else:
            others.add(repr(event))
    return training, evaluations, others


def _sums(where, slices):
    """The slices of an "evaluation" line as {name: (n, loss_sum)}."""
    if not isinstance(slices, dict) or not all(isinstance(part, dict) for part in slices.values()):
        raise ArtifactError(f"{where}: slices is no object of slices")
    if missing := [name for name in SLICES if name not in slices]:
        raise ArtifactError(f"{where}: an evaluation needs the slices {', '.join(SLICES)}; {missing} missing")
    sums = {}
    for name, part in slices.items():
        n = _number(f"{where}, slice {name!r}", part, "n", whole=True)
        sums[name] = (n, _number(f"{where}, slice {name!r}", part, "loss_sum"))
    n_all, n_hits, n_others = (sums[name][0] for name in ("all", "ar_hit", "other"))
    if not 0 < n_all == n_hits + n_others:
        raise ArtifactError(
            f"{where}: {n_all:,} scored tokens, but {n_hits:,} AR hits and {n_others:,} other tokens; "
            "AR hits and other tokens must make up all of at least one"
        )
    return sums


def _number(where, record, key, *, whole=False, finite=True):
    """A number of a line; whole: an int >= 0; finite: not NaN or infinite."""
    value = record.get(key)
    if not isinstance(value, int if whole else (int, float)) or isinstance(value, bool):
        found = "missing" if key not in record else f"{value!r}"
        raise ArtifactError(f"{where}: {key} is {found}, not a {'whole ' if whole else ''}number")
    if (whole and value < 0) or (finite and not math.isfinite(value)):
        raise ArtifactError(f"{where}: {key} is {value!r}, which cannot be")
    return value
