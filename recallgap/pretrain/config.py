"""What decides the result of a pretraining, and how one run of it is carried out."""

import ast
import importlib.util
import inspect
import math
import os
from dataclasses import dataclass, fields
from itertools import pairwise
from types import NoneType
from typing import get_args

from recallgap.errors import ConfigError
from recallgap.pretrain.schedule import SCHEDULES
from recallgap.registry import pick

PRECISIONS = {
    "bf16": "autocast: matrix products in bfloat16; weights, norms, scans, FFTs and the loss in float32",
    "fp32": "everything in float32",
}
DEVICES = {"auto": "a GPU where there is one", "cpu": "the processor", "cuda": "a GPU"}
SEEDS = 1 << 32
LOGGERS = {"tensorboard": "TensorBoard", "wandb": "Weights & Biases"}
"""Name of the package that each needs, and of the tool."""


@dataclass(frozen=True, kw_only=True)
class PretrainConfig:
    """What decides the trained weights, besides the model's config and the corpora. Defaults follow the
    pretrainings of the paper's group (AdamW, cosine, 256 x 2048 tokens a step)."""

    context_len: int = 2048
    """Tokens per context, T."""
    tokens: int | None = None
    """Training tokens in all, rounded down to whole steps, at least one; None: one epoch."""
    batch_size: int = 256
    """Contexts per optimizer step; the device batch times the processes must divide it."""
    learning_rate: float = 8e-4
    """The highest of the schedule; some mixers scale or bound it for some of their parameters."""
    schedule: str = "cosine"
    """cosine or wsd (warm-up, stable, decay)."""
    warmup: float = 0.01
    """Share of the steps in which the learning rate rises to its highest."""
    decay: float = 0.2
    """Share of the steps, at the end, in which a wsd schedule falls; a cosine one falls all the time."""
    final_learning_rate: float = 0.1
    """Where the schedule ends, as a share of `learning_rate`."""
    weight_decay: float = 0.1
    """Of matrices; norms, biases and what a mixer exempts have none."""
    beta1: float = 0.9
    """Decay of AdamW's mean of gradients."""
    beta2: float = 0.95
    """Decay of AdamW's mean of their squares."""
    epsilon: float = 1e-8
    """Added to the root of that mean."""
    clip: float = 1.0
    """Largest norm of the gradient; 0: no clipping."""
    seed: int = 0
    """Of the initial weights and of dropout."""
    data_seed: int = 0
    """Of the order of the contexts, which no other setting changes."""
    precision: str = "bf16"
    """bf16 (autocast of matrix products) or fp32."""
    evaluations: int = 40
    """How often, at equal distances and at the end, the evaluation corpus is evaluated."""
    eval_tokens: int | None = None
    """Take the first so many tokens of it, in whole contexts; None: all."""
    seen_counts: bool = False
    """Evaluate AR hits also by how often the bigram stood in the tokens trained on so far."""

    def __post_init__(self):
        pick("schedule", SCHEDULES, self.schedule)
        pick("precision", PRECISIONS, self.precision)
        for name in ("context_len", "tokens", "batch_size", "evaluations", "eval_tokens"):
            value, least = getattr(self, name), 2 if name == "context_len" else 1
            if value is not None and value < least:
                raise ConfigError(f"{name} is {value}, but at least {least} is needed")
        for name in ("learning_rate", "epsilon"):
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigError(f"{name} is {getattr(self, name)}, but a positive number is needed")
        for name in ("warmup", "decay", "final_learning_rate"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"{name} is {getattr(self, name)}, but a share from 0 to 1 is needed")
        for name in ("beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(
                    f"{name} is {getattr(self, name)}, but a number from 0 and below 1 is needed"
                )
        for name in ("weight_decay", "clip"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ConfigError(f"{name} is {getattr(self, name)}, but it cannot be negative or infinite")
        for name in ("seed", "data_seed"):
            if not 0 <= getattr(self, name) < SEEDS:
                raise ConfigError(
                    f"{name} is {getattr(self, name)}, but a whole number below {SEEDS} is needed"
                )
        if self.schedule == "wsd" and self.warmup + self.decay > 1:
            raise ConfigError(f"warmup {self.warmup} and decay {self.decay} together exceed the whole run")

    @property
    def step_tokens(self):
        """Tokens of one optimizer step."""
        return self.batch_size * self.context_len


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How a run is carried out. Moves results by float noise only, so it is not part of what must agree when
    a run is resumed; the record of the run keeps it."""

    device: str = "auto"
    """One of DEVICES."""
    device_batch_size: int = 8
    """Contexts per forward and process; a step accumulates as many as it needs."""
    compile: bool = False
    """Compile the model with torch.compile (minutes at the start; on a CPU it needs a C++ compiler)."""
    fsdp: bool = False
    """Under torchrun, shard weights and optimizer state (FSDP2) instead of copying them (DDP)."""
    save_minutes: float = 10.0
    """Least time between two checkpoints."""
    loggers: tuple[str, ...] = ()
    """Any of LOGGERS, besides training.jsonl."""

    def __post_init__(self):
        pick("device", DEVICES, self.device)
        for logger in self.loggers:
            tool = pick("logger", LOGGERS, logger)
            if importlib.util.find_spec(logger) is None:
                raise ConfigError(f"logging to {tool} needs the package {logger}: pip install {logger}")
        if self.device_batch_size < 1:
            raise ConfigError(f"device_batch_size is {self.device_batch_size}, but at least 1 is needed")
        if not 0 <= self.save_minutes < math.inf:
            raise ConfigError(f"save_minutes is {self.save_minutes}, but a number from 0 is needed")
        if self.fsdp and "WORLD_SIZE" not in os.environ:
            raise ConfigError(
                "fsdp shards a model over processes, but there is one: start it with torchrun "
                "(docs/pretraining.md), or leave --fsdp away"
            )


def parsed_settings(settings, known):
    """{name: value} of "name=value" texts; known: {name: type}. ConfigError for what cannot be.

    >>> parsed_settings(["tokens=30_000_000", "learning_rate=3e-3"], {"tokens": int, "learning_rate": float})
    {'tokens': 30000000, 'learning_rate': 0.003}
    """
    found = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise ConfigError(f"--set {setting}: write it as name=value")
        kind = pick("setting", known, name)
        if name in found:
            raise ConfigError(f"--set {name} is given twice")
        found[name] = _value(name, text, kind)
    return found


def _value(name, text, annotation):
    """`text` as a value of a type or of `type | None`."""
    kinds = [kind for kind in get_args(annotation) or [annotation] if kind is not NoneType]
    if text.lower() == "none" and NoneType in get_args(annotation):
        return None
    for kind in kinds:
        try:
            return _READ[kind](text)
        except ValueError:
            raise ConfigError(f"--set {name}={text}: {_NEEDED[kind]} is needed") from None


def _whole(text):
    """30e6 is as good a whole number as 30000000."""
    try:
        return int(text)
    except ValueError:
        number = float(text)
        if not number.is_integer():
            raise
        return int(number)


def _boolean(text):
    if text.lower() not in ("true", "false"):
        raise ValueError
    return text.lower() == "true"


_READ = {int: _whole, float: float, str: str, bool: _boolean}
_NEEDED = {int: "a whole number", float: "a number", bool: "true or false"}


def config_types():
    """{name: type, or type | None} of the settings of `PretrainConfig`."""
    return {f.name: f.type for f in fields(PretrainConfig)}


def described_settings():
    """{name: "default; what it is"} of the settings, from the texts under the fields above."""
    body = ast.parse(inspect.getsource(PretrainConfig)).body[0].body
    texts = {}
    for node, after in pairwise(body):
        if isinstance(node, ast.AnnAssign) and isinstance(after, ast.Expr):
            texts[node.target.id] = " ".join(after.value.value.split())
    defaults = {f.name: f"{f.default}".lower() for f in fields(PretrainConfig)}
    return {name: "; ".join(filter(None, [default, texts.get(name)])) for name, default in defaults.items()}
