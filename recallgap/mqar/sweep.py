"""Running a sweep: one training a point, in several processes, each result kept as soon as it is there."""

import json
import multiprocessing
import os
import threading
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass

from recallgap.artifact import open_artifact
from recallgap.errors import ConfigError
from recallgap.mqar.figures import draw
from recallgap.mqar.plan import task_name
from recallgap.mqar.table import page, summary
from recallgap.progress import Progress
from recallgap.registry import pick
from recallgap.report.files import write_files
from recallgap.report.tables import csv_text
from recallgap.staging import stage, up_to_date

KIND = "mqar-sweep"
RESULTS = "results.json"
DEVICES = {"auto": "a GPU where there is one", "cpu": "the processor", "cuda": "a GPU"}


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How a sweep is carried out; no part of what decides its results."""

    workers: int = 1
    """Processes, each of which trains one point at a time."""
    threads: int = 1
    """Of each process. With more than one, sums have another order and a run does not repeat exactly."""
    device: str = "auto"
    """auto, cpu or cuda."""

    def __post_init__(self):
        for name in ("workers", "threads"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}, but at least 1 is needed")
        pick("device", DEVICES, self.device)


def sweep(plan, out, *, options=None, overwrite=False):
    """Train every point of a `Sweep` into the folder `out`, or what is missing of it; returns its results,
    one dict a point.

    A folder made with other settings is refused. Results of an interrupted sweep are kept and not repeated.
    """
    check(plan)
    options = options or RunOptions()
    made = {"kind": KIND, "config": plan.config, "inputs": {}}
    if overwrite or not up_to_date(out, **made):
        with stage(out, **made, overwrite=overwrite) as staging:
            rows = _run(plan, staging, options)
            texts = {RESULTS: json.dumps(rows, indent=1) + "\n", "results.csv": csv_text(_flat(rows))}
            write_files(staging, draw(plan.varied, rows), page(plan, rows), texts)
            staging.results = {"best": summary(plan.varied, rows)}
    return json.loads((open_artifact(out, KIND).path / RESULTS).read_text())


def check(plan):
    """ConfigError where a model cannot be built or an epoch is less than a step: before any training."""
    import torch

    from recallgap.models.lm import RecallGapForCausalLM
    from recallgap.mqar.models import model_config

    if max(plan.batch_sizes) > plan.training.epoch_sequences:
        raise ConfigError(
            f"batch_sizes of a sweep are {list(plan.batch_sizes)}, but an epoch has only "
            f"{plan.training.epoch_sequences} sequences: choose smaller batches or larger epochs"
        )
    for point in plan.points:
        if (point.learning_rate, point.seed) == (plan.learning_rates[0], plan.seeds[0]):
            with torch.device("meta"):
                RecallGapForCausalLM(model_config(point, plan.training))


def _run(plan, staging, options):
    """The results of all points in the order of the grid; those that are not there yet are trained."""
    points = {f"{point.name}.json": point for point in plan.points}
    missing = {name: point for name, point in points.items() if not staging.done(name)}
    n_done = len(points) - len(missing)
    with Progress("mqar sweep", len(points), unit="points", done=n_done) as progress:
        for name, result in _results(missing, plan.training, options):
            with staging.write(name) as path:
                path.write_text(json.dumps(_row(points[name], result)) + "\n")
            progress.advance(1)
    return [json.loads((staging.path / name).read_text()) for name in points]


def _row(point, result):
    place = {
        "model": point.model,
        "width": point.width,
        "task": task_name(point.task),
        "context_len": point.task.context_len,
        "n_pairs": point.task.n_pairs,
        "distances": point.task.distances,
    }
    return place | {"learning_rate": point.learning_rate, "seed": point.seed, **result}


def _results(points, training, options):
    """(name, result) of each point as it is finished. One worker is this process."""
    device = _device(options.device)
    if options.workers == 1:
        yield from _here(points, training, device, options.threads)
        return
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(options.workers, context, initializer=_begin, initargs=(options.threads,))
    waiting, running = list(points.items()), {}
    try:
        while waiting or running:
            while waiting and len(running) < options.workers:  # none queued: an interrupt loses none
                name, point = waiting.pop(0)
                running[pool.submit(_train, point, training, device)] = name
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                yield running.pop(future), future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _here(points, training, device, n_threads):
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(n_threads)
    try:
        for name, point in points.items():
            yield name, _train(point, training, device)
    finally:
        torch.set_num_threads(before)


def _begin(n_threads):
    """The start of a worker, which ends when its parent does, however that ends."""
    import torch

    torch.set_num_threads(n_threads)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent():
    multiprocessing.parent_process().join()
    os._exit(1)


def _train(point, training, device):
    from recallgap.mqar.train import train

    return train(point, training, device)


def _device(device):
    import torch

    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("sweeping on cuda: torch sees no GPU here; use --device cpu")
    return device


def _flat(rows):
    """The results for a table of cells: no curves, distances as text."""
    return [
        {key: value for key, value in row.items() if key not in ("curve", "distances")}
        | {"distances": " ".join(map(str, row["distances"] or ()))}
        for row in rows
    ]
