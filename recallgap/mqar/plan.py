"""What a sweep is: a grid of points, and how each of them is trained."""

import dataclasses
import itertools
import math
from dataclasses import asdict, dataclass, fields

from recallgap.errors import ConfigError
from recallgap.mqar.config import MqarConfig
from recallgap.mqar.models import MODELS
from recallgap.registry import pick

RATE_CHANGES = {"step": "at every step", "epoch": "the same through an epoch"}
SEEDS = 1 << 63
"""torch takes seeds below it."""
VARIED = {
    "width": "model width",
    "distances": "number of distinct distances",
    "pairs": "key-value pairs in a sequence",
    "range": "longest distance",
}
"""What a figure of a sweep has on its horizontal axis."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """How every model of a sweep is trained: AdamW on the loss of the queries alone."""

    n_layers: int = 2
    n_attention_layers: int = 2
    """Of the models that attend, which the released code gives fewer."""
    state_mixer: str = "mlp"
    """What follows each mixer (`recallgap/models/state_mixers.py`)."""
    embed_norm: bool = False
    """A norm right after the embedding, which then starts tiny, and a head of its own, as in RWKV-4; else the
    head shares the embedding's weights."""
    embed_dropout: float = 0.1
    """Of the embedding alone."""
    epochs: int = 64
    """Longest training; each epoch ends with an evaluation."""
    epoch_sequences: int = 100_000
    fresh: bool = False
    """New sequences at every step, instead of the same ones in each epoch."""
    warmup: float = 0.1
    """Share of the steps in which the learning rate rises in a straight line; half a cosine to 0 follows."""
    rate_changes: str = "step"
    """step, or epoch: the learning rate stays the same through an epoch."""
    weight_decay: float = 0.1
    own_rules: bool = False
    """Parameters have the learning rate and decay that their mixer gives them, as in pretraining
    (`recallgap/models/groups.py`); else all have the same, as in the released code."""
    eval_sequences: int = 3000
    """Held out."""
    stop_at: float = 0.99
    """Training ends after an epoch whose accuracy on the held-out sequences is greater."""

    def __post_init__(self):
        for name in ("n_layers", "n_attention_layers", "epochs", "epoch_sequences", "eval_sequences"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}, but at least 1 is needed")
        if math.isnan(self.stop_at):
            raise ConfigError("stop_at is nan, but an accuracy is needed; above 1 no training stops early")
        for name, end in (("embed_dropout", 1), ("warmup", 1), ("weight_decay", math.inf)):
            if not 0 <= getattr(self, name) < end:
                raise ConfigError(f"{name} is {getattr(self, name)}, but must be from 0 to below {end}")
        pick("change of the learning rate", RATE_CHANGES, self.rate_changes)
        if self.rate_changes == "epoch" and self.warmup:
            raise ConfigError(
                f"warmup is {self.warmup}, but a learning rate that stays the same through an epoch has no "
                "warm-up: set warmup=0 or rate_changes=step"
            )


@dataclass(frozen=True)
class Point:
    """One training of one model on one task."""

    model: str
    width: int
    task: MqarConfig
    batch_size: int
    learning_rate: float
    seed: int

    @property
    def name(self):
        return f"{self.model}-d{self.width}-{task_name(self.task)}-lr{self.learning_rate:g}-s{self.seed}"


def task_name(task):
    """Name of a task among those of a sweep.

    >>> task_name(MqarConfig(context_len=128, n_pairs=8))
    'n128-p8'
    """
    name = f"n{task.context_len}-p{task.n_pairs}"
    return name if task.distances is None else f"{name}-t{len(task.distances)}-r{max(task.distances)}"


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """A grid: every model at every width on every task with every learning rate and seed."""

    varied: str
    """A key of VARIED."""
    models: tuple[str, ...]
    widths: tuple[int, ...]
    tasks: tuple[MqarConfig, ...]
    batch_sizes: tuple[int, ...]
    """Sequences a step, one number a task."""
    learning_rates: tuple[float, ...]
    seeds: tuple[int, ...] = (0,)
    training: Training

    def __post_init__(self):
        pick("quantity to vary", VARIED, self.varied)
        names = [task_name(task) for task in self.tasks]
        if len(set(names)) < len(names):
            raise ConfigError(
                f"tasks of a sweep are {names}, but must differ in what their names say; "
                f"a setting of all tasks cannot be what the sweep varies ({VARIED[self.varied]})"
            )
        for name in ("models", "widths", "tasks", "learning_rates", "seeds"):
            values = getattr(self, name)
            if name == "learning_rates":
                values = [f"{rate:g}" for rate in values]  # as in the name of a point
            if not values or len(set(values)) < len(values):
                raise ConfigError(f"{name} of a sweep are {list(values)}, but need at least one, each once")
        if len(self.batch_sizes) != len(self.tasks):
            raise ConfigError(
                f"a sweep of {len(self.tasks)} tasks has {len(self.batch_sizes)} batch sizes: name one a task"
            )
        for name in self.models:
            pick("model", MODELS, name)
        if not 0 <= min(self.seeds) <= max(self.seeds) < SEEDS:
            raise ConfigError(f"seeds of a sweep are {list(self.seeds)}, but seeds go from 0 to {SEEDS - 1}")
        for name in ("widths", "batch_sizes", "learning_rates"):
            wrong = [value for value in getattr(self, name) if not 0 < value < math.inf]
            if wrong:
                raise ConfigError(f"{name} of a sweep hold {wrong}, but positive numbers are needed")

    @property
    def points(self):
        tasks = list(zip(self.tasks, self.batch_sizes, strict=True))
        grid = itertools.product(self.models, self.widths, tasks, self.learning_rates, self.seeds)
        return [Point(model, width, *task, rate, seed) for model, width, task, rate, seed in grid]

    @property
    def config(self):
        """JSON values that decide every result."""
        return asdict(self) | {"tasks": {task_name(task): asdict(task) for task in self.tasks}}


def with_settings(sweep, settings):
    """The sweep with settings changed: `name=value`, or of its lists `name=value,value`.

    Names: the sweep's own lists (`tasks` chooses among its own by name, `batch_sizes` may be one number),
    a field of `Training`, or a field of every task (`MqarConfig`).
    """
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or not text:
            raise ConfigError(f"--set {setting}: a setting is NAME=VALUE, with a value")
        kinds = _kinds()
        change = pick("setting of a sweep", kinds, name)
        sweep = change(sweep, name, text)
    return sweep


def _kinds():
    lists = {name: _set_list for name in ("widths", "learning_rates", "seeds")}
    own = {"tasks": _set_tasks, "batch_sizes": _set_batch_sizes}
    training = {field.name: _set_training for field in fields(Training)}
    return {field.name: _set_task for field in fields(MqarConfig)} | training | lists | own


def _set_list(sweep, name, text):
    like = getattr(sweep, name)[0]
    values = tuple(_value(name, part, like) for part in text.split(","))
    return dataclasses.replace(sweep, **{name: values})


def _set_batch_sizes(sweep, name, text):
    values = tuple(_value(name, part, 1) for part in text.split(","))
    return dataclasses.replace(sweep, batch_sizes=values * len(sweep.tasks) if len(values) == 1 else values)


def _set_tasks(sweep, name, text):  # noqa: ARG001
    size_of = {task_name(t): (t, b) for t, b in zip(sweep.tasks, sweep.batch_sizes, strict=True)}
    chosen = [pick("task of the sweep", size_of, part) for part in text.split(",")]
    return dataclasses.replace(
        sweep, tasks=tuple(t for t, _ in chosen), batch_sizes=tuple(b for _, b in chosen)
    )


def _set_training(sweep, name, text):
    value = _value(name, text, getattr(sweep.training, name))
    return dataclasses.replace(sweep, training=dataclasses.replace(sweep.training, **{name: value}))


def _set_task(sweep, name, text):
    if name == "distances":
        value = tuple(_value(name, part, 1) for part in text.split(","))
    else:
        value = _value(name, text, getattr(MqarConfig(), name))
    tasks = tuple(dataclasses.replace(task, **{name: value}) for task in sweep.tasks)
    return dataclasses.replace(sweep, tasks=tasks)


def _value(name, text, like):
    """The text as a value of the type of `like`; ConfigError where it is none."""
    kind = type(like)
    try:
        if kind is bool:
            return {"true": True, "false": False}[text.lower()]
        return kind(float(text)) if kind is int and float(text) == int(float(text)) else kind(text)
    except (KeyError, ValueError, OverflowError):
        wanted = {bool: "true or false", int: "a whole number", float: "a number"}[kind]
        raise ConfigError(f"{name} is '{text}', but {wanted} is needed") from None
