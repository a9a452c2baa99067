"""Which kernel is chosen and told, what it is given, and on a GPU that it computes what our own code does."""

import functools
import importlib
import inspect
import sys
import types
import warnings

import pytest
import torch
from mixer_cases import build_mixer, random_input, run, shaken, variants
from torch.nn import functional as F

from recallgap.errors import ConfigError
from recallgap.models import RecallGapConfig, RecallGapForCausalLM, backends
from recallgap.models.backends import KERNELS, VARIABLE, Operation, in_use
from recallgap.models.convolution import causal_conv

CLOSE = 1e-5
"""Of the largest number of a tensor; float32, sums of a few hundred terms in another order."""
CUDA, CPU = torch.device("cuda"), torch.device("cpu")
BF16 = torch.bfloat16


# Slow functions with the kernels' arguments, as their documentation has them.


def recurrence(q, k, v, scale, g, write):
    """o_t = scale S_t^T q_t, S_t = e^g_t S_{t-1} + write(t, S_{t-1}, e^g_t S_{t-1}); g (B, T, H, K or 1)."""
    S, outputs = v.new_zeros(*k.shape[:1], *k.shape[2:], v.shape[-1]), []
    for t in range(q.shape[1]):
        decayed = g[:, t].exp().unsqueeze(-1) * S
        S = decayed + write(t, S, decayed)
        outputs.append(scale * torch.einsum("bhk,bhkv->bhv", q[:, t], S))
    return torch.stack(outputs, 1), None


def outer(k, v):
    return torch.einsum("bhk,bhv->bhkv", k, v)


def recall(k, S):
    return torch.einsum("bhk,bhkv->bhv", k, S)


def chunk_gla(q, k, v, g, scale):
    return recurrence(q, k, v, scale, g, lambda t, *_: outer(k[:, t], v[:, t]))


def chunk_simple_gla(q, k, v, scale, g=None, g_gamma=None):
    g = g_gamma.expand(*q.shape[:3]) if g is None else g
    return chunk_gla(q, k, v, g.unsqueeze(-1), scale)


def chunk_gated_delta_rule(q, k, v, g, beta, scale):
    def write(t, _, decayed):
        return outer(k[:, t], beta[:, t].unsqueeze(-1) * (v[:, t] - recall(k[:, t], decayed)))

    return recurrence(q, k, v, scale, g.unsqueeze(-1), write)


def chunk_delta_rule(q, k, v, beta, scale):
    return chunk_gated_delta_rule(q, k, v, torch.zeros_like(beta), beta, scale)


def chunk_rwkv7(r, w, k, v, a, b, scale, safe_gate, lower_bound, chunk_size):
    assert safe_gate
    assert lower_bound <= w.min()

    def write(t, S, _):
        return outer(k[:, t], v[:, t]) + outer(b[:, t], recall(a[:, t], S))

    return recurrence(r, k, v, scale, w, write)


def causal_conv1d_fn(x, weight, bias, activation):
    D, K = weight.shape
    y = F.conv1d(x, weight.unsqueeze(1), bias, padding=K - 1, groups=D)[..., : x.shape[2]]
    return y if activation is None else F.silu(y)


SLOW = {
    f.__name__: f
    for f in (
        chunk_gla,
        chunk_simple_gla,
        chunk_delta_rule,
        chunk_gated_delta_rule,
        chunk_rwkv7,
        causal_conv1d_fn,
    )
}


# fla's own slow functions, with the kernels' arguments.


def fla_slow(name):
    """The kernel `name` by fla's slow functions; skips where fla is not installed."""
    pytest.importorskip("fla", reason="fla is not installed: its slow functions cannot be compared with")
    pytest.importorskip("triton", reason="fla's modules cannot be imported without triton")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gla = importlib.import_module("fla.ops.gla.naive").naive_recurrent_gla
        simple = importlib.import_module("fla.ops.simple_gla.naive").naive_recurrent_simple_gla
        delta = importlib.import_module("fla.ops.delta_rule.naive").delta_rule_recurrence
        gated = importlib.import_module("fla.ops.gated_delta_rule.naive").naive_recurrent_gated_delta_rule
        dplr = importlib.import_module("fla.ops.generalized_delta_rule.dplr.naive").dplr_recurrence

    def unscaled(q, scale):
        """Some have no argument for the scale, and 1 / sqrt(K) built in."""
        return q * scale * q.shape[-1] ** 0.5

    def heads_first(slow, **tensors):
        o, _ = slow(**{name: x.transpose(1, 2) for name, x in tensors.items()})
        return o.transpose(1, 2), None

    return {
        "chunk_gla": lambda q, k, v, g, scale: gla(unscaled(q, scale), k, v, g),
        "chunk_simple_gla": lambda q, k, v, scale, g=None, g_gamma=None: simple(
            q, k, v, g_gamma.expand(*q.shape[:3]) if g is None else g, scale
        ),
        "chunk_delta_rule": lambda q, k, v, beta, scale: heads_first(
            delta, q=unscaled(q, scale), k=k, v=v, beta=beta
        ),
        "chunk_gated_delta_rule": lambda q, k, v, g, beta, scale: gated(q, k, v, beta, g, scale),
        "chunk_rwkv7": lambda r, w, k, v, a, b, scale, **_: heads_first(
            dplr, q=unscaled(r, scale), k=k, v=v, alpha=a, beta=b, gk=w
        ),
    }[name]


# What a kernel is given.


def operations_of(mixer):
    return [m.operation for m in mixer.modules() if isinstance(getattr(m, "operation", None), Operation)]


NORM_EPS = {"retnet": {"norm_eps": 1e-2}}
"""A head that is near zero and normalised all the same shows rounding errors enlarged."""
WITH_KERNEL = [
    pytest.param(name, {**options, **NORM_EPS.get(name, {})}, id=f"{name}-{i}")
    for i, (name, options) in enumerate(variants())
    if operations_of(build_mixer(name, options)) and options.get("kernel_len", 3) is not None
]


def with_gradients(mixer):
    """The mixer's output in float32, and the gradients of a weighted sum of it."""
    mixer.zero_grad()
    x_BTD, context = random_input()
    x_BTD = x_BTD.float().requires_grad_()
    y_BTD = run(mixer, x_BTD, context)
    (y_BTD * torch.cos(torch.arange(y_BTD.numel()).view_as(y_BTD))).sum().backward()
    return {"y": y_BTD.detach(), "x": x_BTD.grad} | {n: p.grad for n, p in mixer.named_parameters()}


def assert_kernels_do_the_same(mixer, slow, monkeypatch):
    ours = with_gradients(mixer)
    used = set()

    def kernel(operation, x):
        found = KERNELS[operation.name]
        used.add(operation.name)
        return functools.partial(found.call, slow(found.function), x.dtype)

    monkeypatch.setattr(Operation, "kernel", kernel)
    theirs = with_gradients(mixer)
    assert used == {operation.name for operation in operations_of(mixer)}
    for name, value in ours.items():
        tolerance = CLOSE * max(1.0, float(value.abs().max()))
        torch.testing.assert_close(
            theirs[name], value, rtol=0, atol=tolerance, msg=lambda m, n=name: f"{n}: {m}"
        )


@pytest.mark.parametrize(("name", "options"), WITH_KERNEL)
def test_a_mixer_is_the_same_by_slow_functions_with_the_kernels_arguments(name, options, monkeypatch):
    mixer = shaken(build_mixer(name, options)).float()
    assert_kernels_do_the_same(mixer, SLOW.__getitem__, monkeypatch)


@pytest.mark.parametrize(("name", "options"), WITH_KERNEL)
def test_a_mixer_is_the_same_by_flas_own_slow_functions(name, options, monkeypatch):
    mixer = shaken(build_mixer(name, options)).float()
    if {op.name for op in operations_of(mixer)} == {"short_conv"}:
        pytest.skip("its kernel is not fla's")
    slow = {"causal_conv1d_fn": causal_conv1d_fn}
    slow |= {f: fla_slow(f) for f in SLOW if f != "causal_conv1d_fn"}
    assert_kernels_do_the_same(mixer, slow.__getitem__, monkeypatch)


@pytest.mark.parametrize("name", KERNELS)
def test_the_installed_function_takes_the_arguments_we_pass(name):
    kernel = KERNELS[name]
    top = kernel.module.partition(".")[0]
    pytest.importorskip(top, reason=f"{top} is not installed: its signature cannot be compared with")
    pytest.importorskip("triton", reason="fla's modules cannot be imported without triton")
    parameters = inspect.signature(
        getattr(importlib.import_module(kernel.module), kernel.function)
    ).parameters
    given = inspect.signature(SLOW[kernel.function]).parameters
    assert given.keys() <= parameters.keys(), "an argument has another name, or would vanish in **kwargs"
    required = {
        n for n, p in parameters.items() if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD
    }
    assert required <= given.keys()


# Which kernel is chosen, and that it is told.


@pytest.fixture
def packages(monkeypatch):
    """fla 0.6.3 and causal-conv1d 1.7.0 that can be imported; what their functions are given, by dtype."""
    given = {}

    def noting(name):
        def call(*args, **kwargs):
            names = inspect.signature(SLOW[name]).bind(*args, **kwargs).arguments
            given[name] = {n: x.dtype for n, x in names.items() if torch.is_tensor(x)}
            return SLOW[name](*args, **kwargs)

        return call

    modules = {"fla": {"__version__": "0.6.3"}, "fla.ops": {}, "causal_conv1d": {"__version__": "1.7.0"}}
    for kernel in KERNELS.values():
        modules.setdefault(kernel.module, {})[kernel.function] = noting(kernel.function)
    for name, attributes in modules.items():
        module = types.ModuleType(name)
        module.__dict__.update(attributes)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setenv(VARIABLE, "auto")
    backends._load.cache_clear()
    yield given
    backends._load.cache_clear()


def fitting(name):
    return Operation(name, 4) if name == "short_conv" else Operation(name, 64, 128)


EXPECTED = {name: "causal-conv1d 1.7.0" if name == "short_conv" else "fla 0.6.3" for name in KERNELS}


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_is_used_on_cuda_in_bfloat16_and_nowhere_else(name, packages):
    operation = fitting(name)
    assert operation.backend(CUDA, BF16) == EXPECTED[name]
    assert operation.backend(CPU, BF16) == "torch"
    assert operation.backend(CUDA, torch.float64) == "torch"
    assert (operation.backend(CUDA, torch.float32) == "torch") == (name != "short_conv")


@pytest.mark.parametrize("sizes", [(512, 64), (8, 64), (64, 8), (63, 64), (64, 33)])
def test_heads_that_a_kernel_does_not_take_are_left_to_our_own_code(sizes, packages):
    assert Operation("gla", *sizes).backend(CUDA, BF16) == "torch"
    assert Operation("short_conv", sizes[0]).backend(CUDA, BF16) == "torch"


def test_the_variable_keeps_kernels_off(packages, monkeypatch):
    monkeypatch.setenv(VARIABLE, "torch")
    assert {fitting(name).backend(CUDA, BF16) for name in KERNELS} == {"torch"}
    monkeypatch.setenv(VARIABLE, "auto")
    assert fitting("gla").backend(CUDA, BF16) == "fla 0.6.3"


def test_a_wrong_variable_is_an_error(packages, monkeypatch):
    monkeypatch.setenv(VARIABLE, "off")
    with pytest.raises(ConfigError, match=r"'off', but it can be 'torch' .the default. or 'auto'"):
        fitting("gla").backend(CUDA, BF16)


@pytest.mark.parametrize("name", KERNELS)
def test_without_the_packages_our_own_code_runs_and_nothing_is_said(name, packages, monkeypatch, recwarn):
    monkeypatch.setitem(sys.modules, "fla", None)
    monkeypatch.setitem(sys.modules, "causal_conv1d", None)
    assert fitting(name).backend(CUDA, BF16) == "torch"
    assert len(recwarn) == 0


@pytest.mark.parametrize("version", ["0.5.2", "0.7.0", "1.0"])
def test_an_unknown_version_is_not_used_and_said_once(version, packages, monkeypatch):
    monkeypatch.setattr(sys.modules["fla"], "__version__", version)
    with pytest.warns(RuntimeWarning, match=f"version {version}, and 0.6 up to 0.7 is known"):
        assert fitting("gla").backend(CUDA, BF16) == "torch"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fitting("gla").backend(CUDA, BF16) == "torch"


def test_a_broken_package_is_not_used_and_said(packages, monkeypatch):
    monkeypatch.setitem(sys.modules, "fla.ops.gla", None)
    with pytest.warns(
        RuntimeWarning, match="fla is installed, but chunk_gla is not used: it cannot be imported"
    ):
        assert fitting("gla").backend(CUDA, BF16) == "torch"
    assert fitting("delta_net").backend(CUDA, BF16) == "fla 0.6.3"


LAYERS = [
    {"mixer": "gla", "n_heads": 2},
    {"mixer": "gla", "n_heads": 2, "d_key": 300},
    {"mixer": "delta_net", "n_heads": 2},
    {"mixer": "gated_delta_net", "n_heads": 2, "d_key": 16, "d_value": 32},
    {"mixer": "mamba2", "d_state": 16},
    {"mixer": "retnet", "n_heads": 2},
    {"mixer": "rwkv7", "d_head": 16, "value_residual": False},
    "base_conv",
    "hyena",
    {"mixer": "attention", "n_heads": 2},
]
CONFIG = {"vocab_size": 11, "d_model": 64, "context_len": 16, "layers": LAYERS}


def test_a_model_tells_what_is_in_use(packages, monkeypatch):
    model = RecallGapForCausalLM(RecallGapConfig(**CONFIG))
    assert in_use(model) == dict.fromkeys(KERNELS, "torch")
    monkeypatch.setattr(backends, "DEVICE", "cpu")
    assert in_use(model, BF16) == {**EXPECTED, "gla": "fla 0.6.3, torch"}
    assert in_use(model) == dict.fromkeys(KERNELS, "torch") | {"short_conv": "causal-conv1d 1.7.0"}


def test_what_is_told_is_what_runs(packages, monkeypatch):
    """A model that takes the CPU for a GPU, under autocast: kernels get bfloat16, but decays in float32."""
    model = RecallGapForCausalLM(RecallGapConfig(**CONFIG))
    ids_BT = torch.arange(2 * CONFIG["context_len"]).view(2, -1) % CONFIG["vocab_size"]
    with torch.autocast("cpu", dtype=BF16):
        model(ids_BT)
    assert packages == {}
    monkeypatch.setattr(backends, "DEVICE", "cpu")
    with torch.autocast("cpu", dtype=BF16):
        loss = model(ids_BT, labels=ids_BT).loss
    loss.backward()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
    assert packages.keys() == {kernel.function for kernel in KERNELS.values()}
    packages.pop("causal_conv1d_fn")
    for dtypes in packages.values():
        assert dtypes == {n: torch.float32 if n in ("g", "g_gamma", "w") else BF16 for n in dtypes}
    packages.clear()
    monkeypatch.setenv(VARIABLE, "torch")
    with torch.autocast("cpu", dtype=BF16):
        model(ids_BT)
    assert packages == {}


@pytest.mark.parametrize("D", [8, 12])
@pytest.mark.parametrize("T", [1, 2, 9])
def test_a_layout_that_causal_conv1d_refuses_is_copied(D, T, packages, monkeypatch):
    """Channels innermost must come in whole eights, also where they are a slice of something wider."""
    seen = []

    def picky(x, weight, bias, activation):
        seen.append(x)
        channels_last = x.stride(1) == 1 and x.stride(2) > 1
        assert x.stride(2) == 1 or x.stride(1) == 1
        assert not channels_last or all(n % 8 == 0 for n in (D, x.stride(0), x.stride(2), x.storage_offset()))
        return causal_conv1d_fn(x, weight, bias, activation)

    call = functools.partial(KERNELS["short_conv"].call, picky, torch.float32)
    wide_BTD = torch.randn(2, T, 3 * D)
    taps_DK, bias_D = torch.randn(D, 4), torch.randn(D)
    for x_BTD in (
        wide_BTD[..., :D].clone(),
        wide_BTD[..., :D],
        wide_BTD[..., D : 2 * D],
        wide_BTD[..., 3:][..., :D],
    ):
        x_BDT = x_BTD.transpose(1, 2)
        torch.testing.assert_close(call(x_BDT, taps_DK, bias_D), causal_conv(x_BDT, taps_DK, bias_D))
    if D == 8 and T > 1:
        assert [x.is_contiguous() for x in seen] == [False, False, False, True], "copied without need"
