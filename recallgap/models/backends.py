"""GPU kernels of other packages for what our mixers compute; where there is none, our own code does it.

    operation         kernel                                       in the place of
    short_conv        causal_conv1d.causal_conv1d_fn               convolution.py, and SiLU in short_conv.py
    gla               fla.ops.gla.chunk_gla                        gated_linear.py
    retnet            fla.ops.simple_gla.chunk_simple_gla          retention in mixers/retnet.py
    mamba2            fla.ops.simple_gla.chunk_simple_gla          ssd.py
    delta_net         fla.ops.delta_rule.chunk_delta_rule          delta_rule.py
    gated_delta_net   fla.ops.gated_delta_rule.chunk_gated_delta_rule   delta_rule.py with decay
    rwkv7             fla.ops.rwkv7.chunk_rwkv7                    dplr.py

They are off unless RECALLGAP_BACKEND=auto is set: for want of a GPU, none has been run yet. A kernel then
runs where its package can be imported, in a version that was read, x is on CUDA, and it takes dtype and
widths.
fla's run in bfloat16 alone, under autocast or in a bfloat16 model: their float32 products are TF32 by
default, its delta rule refuses float32, and float16 may overflow before the norm. So a float32 run stays
float32 throughout.
Each adapter takes what our own function takes and returns what it returns. What it passes on is checked on a
CPU, with slow functions in the kernels' places (tests/test_models_backends.py); tests that run the kernels
themselves need a GPU.
Left out: based (fla's has an epsilon of its own), rwkv (fla has no slow function to compare with).
Legend: B batch, T position, D channels, H heads, K key width or taps, V value width; G groups of R heads.
"""

import functools
import importlib
import math
import os
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch

from recallgap.errors import ConfigError

DEVICE, VARIABLE = "cuda", "RECALLGAP_BACKEND"
TORCH, AUTO = "torch", "auto"
"""Values of the variable; the first is also how a record names our own code."""
SLOWEST_RWKV7 = -math.exp(-0.5)
"""RWKV-7's log decays lie above it, which lets the kernel take larger chunks."""


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """A function of another package, and when it may be called."""

    package: str
    """As it is told in a record, before its version."""
    versions: tuple
    """From the first, below the second: in these the arguments mean what `call` takes them for."""
    module: str
    function: str
    call: Callable
    """call(function, dtype, *what our own function takes)."""
    dtypes: tuple
    """What a layer may compute in for the kernel to be used."""
    fits: Callable
    """Whether it takes heads, or a convolution, of these sizes."""


class Operation:
    """What a mixer does that a kernel could do: its name in KERNELS and its sizes, (K, V) or (K,)."""

    def __init__(self, name, *sizes):
        self.name, self.sizes = name, sizes

    def kernel(self, x):
        """What to call for input x in the place of our own function; None: that one."""
        return _bound(self, x) if x.device.type == DEVICE else None

    def backend(self, device, dtype):
        """What does it on a device in a dtype: "torch", our own function, or a package and its version."""
        loaded = _choice(self, device, dtype)
        return TORCH if loaded is None else loaded[1]


def in_use(model, dtype=None):
    """{operation: backend} of a model on the device where its weights are, for the record of a run.

    dtype: what its layers compute in, under autocast the lower one; None: that of the weights. Where layers
    differ, as heads too wide for a kernel do, both are named.
    """
    found = {}
    for module in model.modules():
        operation = getattr(module, "operation", None)
        if isinstance(operation, Operation):
            weight = next(module.parameters())
            found.setdefault(operation.name, set()).add(
                operation.backend(weight.device, dtype or weight.dtype)
            )
    return {name: ", ".join(sorted(backends)) for name, backends in sorted(found.items())}


@torch.compiler.disable
def _bound(operation, x):
    dtype = compute_dtype(x)
    loaded = _choice(operation, x.device, dtype)
    return None if loaded is None else functools.partial(KERNELS[operation.name].call, loaded[0], dtype)


def compute_dtype(x):
    """The dtype of a linear layer's result for input x: autocast's, which leaves float64 alone, or x's."""
    device = x.device.type
    if x.dtype != torch.float64 and torch.is_autocast_enabled(device):
        return torch.get_autocast_dtype(device)
    return x.dtype


def _choice(operation, device, dtype):
    """(function, "package version") of the kernel to use, or None."""
    kernel = KERNELS[operation.name]
    if device.type != DEVICE or dtype not in kernel.dtypes or not kernel.fits(*operation.sizes):
        return None
    return None if _switched_off() else _load(operation.name)


def _switched_off():
    value = os.environ.get(VARIABLE, TORCH)
    if value not in (AUTO, TORCH):
        raise ConfigError(f"{VARIABLE} is '{value}', but it can be '{TORCH}' (the default) or '{AUTO}'")
    return value == TORCH


@functools.cache
def _load(name):
    """(function, "package version"), or None; a package that is there but of no use is warned of, once."""
    kernel = KERNELS[name]
    top = kernel.module.partition(".")[0]
    try:
        version = importlib.import_module(top).__version__
        function = getattr(importlib.import_module(kernel.module), kernel.function)
    except Exception as error:  # a package built for other versions fails in any way when it is imported
        if not (isinstance(error, ModuleNotFoundError) and error.name == top):
            _warn(kernel, f"it cannot be imported ({type(error).__name__}: {error})")
        return None
    first, beyond = kernel.versions
    if not first <= _numbers(version) < beyond:
        _warn(kernel, f"it is version {version}, and {_dots(first)} up to {_dots(beyond)} is known")
        return None
    return function, f"{kernel.package} {version}"


def _warn(kernel, reason):
    warnings.warn(
        f"{kernel.package} is installed, but {kernel.function} is not used: {reason}. Our own code runs "
        f"instead; without {VARIABLE}={AUTO} nothing is tried",
        RuntimeWarning,
        stacklevel=2,
    )


def _numbers(version):
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def _dots(numbers):
    return ".".join(map(str, numbers))


@torch.compiler.disable
def _short_conv(causal_conv1d_fn, _dtype, x_BDT, taps_DK, bias_D=None, *, silu=False):
    """Its last tap meets the present position, our first one does. It computes in float32 inside."""
    if not _is_taken_as_it_lies(x_BDT):
        x_BDT = x_BDT.clone(memory_format=torch.contiguous_format)
    return causal_conv1d_fn(x_BDT, taps_DK.flip(1), bias_D, activation="silu" if silu else None)


def _is_taken_as_it_lies(x_BDT):
    """Channels innermost in rows of whole 8 numbers, which it reads at a time; or time innermost."""
    eights = (x_BDT.shape[1], x_BDT.stride(0), x_BDT.stride(2), x_BDT.storage_offset())
    return x_BDT.stride(2) == 1 or (x_BDT.stride(1) == 1 and all(number % 8 == 0 for number in eights))


@torch.compiler.disable
def _gla(chunk_gla, dtype, q_BTHK, k_BTHK, v_BTHV, g_BTHK):
    q, k, v = (x.to(dtype) for x in (q_BTHK, k_BTHK, v_BTHV))
    return chunk_gla(q=q, k=k, v=v, g=g_BTHK, scale=1.0)[0].float()


@torch.compiler.disable
def _retention(chunk_simple_gla, dtype, q_BTHK, k_BTHK, v_BTHV, log_gamma_H):
    q, k, v = (x.to(dtype) for x in (q_BTHK, k_BTHK, v_BTHV))
    return chunk_simple_gla(q=q, k=k, v=v, g_gamma=log_gamma_H, scale=1.0)[0].float()


@torch.compiler.disable
def _ssd(chunk_simple_gla, dtype, v_BTGRV, g_BTGR, k_BTGK, q_BTGK):
    """Heads of a group have copies of its k and q, as this kernel knows no groups."""
    G, R = g_BTGR.shape[2:]
    q, k = (x.to(dtype).repeat_interleave(R, dim=2) for x in (q_BTGK, k_BTGK))
    v, g = v_BTGRV.to(dtype).flatten(2, 3), g_BTGR.flatten(2, 3)
    return chunk_simple_gla(q=q, k=k, v=v, g=g, scale=1.0)[0].float().unflatten(2, (G, R))


@torch.compiler.disable
def _delta_rule(chunk_delta_rule, dtype, q_BTHK, k_BTHK, v_BTHV, beta_BTH):
    q, k, v, beta = (x.to(dtype) for x in (q_BTHK, k_BTHK, v_BTHV, beta_BTH))
    return chunk_delta_rule(q=q, k=k, v=v, beta=beta, scale=1.0)[0].float()


@torch.compiler.disable
def _gated_delta_rule(chunk_gated_delta_rule, dtype, q_BTHK, k_BTHK, v_BTHV, beta_BTH, g_BTH):
    q, k, v, beta = (x.to(dtype) for x in (q_BTHK, k_BTHK, v_BTHV, beta_BTH))
    return chunk_gated_delta_rule(q=q, k=k, v=v, g=g_BTH, beta=beta, scale=1.0)[0].float()


@torch.compiler.disable
def _dplr(chunk_rwkv7, dtype, r_BTHK, log_w_BTHK, k_BTHK, v_BTHK, a_BTHK, c_BTHK):
    """Its state is erased along `a` and written along `b`: -c and a c. Chunks as fla's own layer has them."""
    r, k, v, a, b = (x.to(dtype) for x in (r_BTHK, k_BTHK, v_BTHK, -c_BTHK, a_BTHK * c_BTHK))
    bound = {"safe_gate": True, "lower_bound": SLOWEST_RWKV7, "chunk_size": 64}
    return chunk_rwkv7(r=r, w=log_w_BTHK, k=k, v=v, a=a, b=b, scale=1.0, **bound)[0].float()


def _heads_fit(K, V):
    """Keys beyond 256 are refused, odd widths miscompiled, and tensor cores take 16 numbers at least."""
    return 16 <= K <= 256 and V >= 16 and K % 2 == V % 2 == 0


def _fla(module, function, call):
    return Kernel(
        package="fla",
        versions=((0, 6), (0, 7)),
        module=f"fla.ops.{module}",
        function=function,
        call=call,
        dtypes=(torch.bfloat16,),
        fits=_heads_fit,
    )


KERNELS = {
    "short_conv": Kernel(
        package="causal-conv1d",
        versions=((1, 6), (2, 0)),
        module="causal_conv1d",
        function="causal_conv1d_fn",
        call=_short_conv,
        dtypes=(torch.float32, torch.bfloat16, torch.float16),
        fits=lambda K: 2 <= K <= 4,
    ),
    "gla": _fla("gla", "chunk_gla", _gla),
    "retnet": _fla("simple_gla", "chunk_simple_gla", _retention),
    "mamba2": _fla("simple_gla", "chunk_simple_gla", _ssd),
    "delta_net": _fla("delta_rule", "chunk_delta_rule", _delta_rule),
    "gated_delta_net": _fla("gated_delta_rule", "chunk_gated_delta_rule", _gated_delta_rule),
    "rwkv7": _fla("rwkv7", "chunk_rwkv7", _dplr),
}
