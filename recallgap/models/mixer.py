"""What a sequence mixer is: the contract that each file in `mixers/` keeps (test_models_contract.py).

    Options                      a frozen dataclass of the mixer's own options, each field documented
    __init__(d_model, options, place)
    forward(x_BTD, context)      -> (B, T, D), strictly causal; no norm, no residual: the block owns both
    init_weights()               fills every parameter as the mixer's source does, through torch.nn.init only
    state_size(T)                numbers one sequence must hold at inference after T tokens
    flops(T)                     operations a token of matrix products, convolutions, FFTs in one forward of
                                 T tokens of one sequence; attention counts the full square (as PaLM, app. B);
                                 flops(T, selected) where the data decide which share of rows is computed
    param_rules()                {name pattern: ParamRule} for parameters that are not trained like a matrix

A mixer that has a recurrent form adds
    start(batch_size)            -> the state before the first token (a dict of tensors)
    step(x_BD, state, context)   -> (y_BD, state), equal to one column of `forward`

Legend: B batch, T position, D model width, H heads, V vocabulary.
"""

from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import get_args, get_type_hints

import torch

from recallgap.errors import ConfigError
from recallgap.registry import pick

TYPE_NAMES = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a name",
    type(None): "nothing (None)",
}
NUMBERS = {int: Integral, float: Real}


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where in the model a mixer stands."""

    layer: int
    """Number of the layer, from 0."""
    n_layers: int
    context_len: int
    """Longest context the model is built for; tables and filters have this length."""


@dataclass(kw_only=True)
class MixerContext:
    """What a mixer may know of the batch besides its input."""

    ids_BT: torch.Tensor
    real_BT: torch.Tensor | None = None
    """False at padding, which stands at the end of a row here; None: there is none."""
    auxiliary_losses: list = field(default_factory=list)
    """Scalars that the training loss adds (learned selection)."""
    shared: dict = field(default_factory=dict)
    """What a layer leaves for later ones in the same forward or step; a name begins with its mixer's."""


@dataclass(frozen=True, kw_only=True)
class ParamRule:
    """How the optimiser treats a parameter."""

    weight_decay: bool = False
    lr_scale: float = 1.0
    lr_max: float | None = None
    """Upper bound of the learning rate (state-space parameters: 1e-3)."""


def options_of(kind, cls, given):
    """The `Options` of a mixer class from a dict; ConfigError for an unknown name, or a value of a
    wrong type."""
    types = get_type_hints(cls.Options)
    for name, value in given.items():
        wanted = pick(f"option of {kind}", types, name)
        if not any(_is_a(value, one) for one in get_args(wanted) or [wanted]):
            expected = " or ".join(TYPE_NAMES[one] for one in get_args(wanted) or [wanted])
            raise ConfigError(f"{kind}: {name} is {value!r}, but {expected} is needed")
    return cls.Options(**given)


def _is_a(value, kind):
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, NUMBERS.get(kind, kind))


def heads_of(d_model, n_heads, what):
    """Width of one head; ConfigError where the heads do not divide the width."""
    if n_heads < 1 or d_model % n_heads:
        raise ConfigError(f"{what}: {n_heads} heads do not divide a width of {d_model}")
    return d_model // n_heads


def wide(x):
    """x in float32, or float64 where it is so: for decays, scans and states, whatever autocast says."""
    return x if x.dtype == torch.float64 else x.float()


@torch.no_grad()
def fill_(parameter, values):
    """Set a parameter to a table of values; one that transformers marks as loaded stays, as with nn.init."""
    if not getattr(parameter, "_is_hf_initialized", False):
        parameter.copy_(values)
