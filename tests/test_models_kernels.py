"""On a GPU: that other packages' kernels compute what our own code does. Skipped where there is none."""

import pytest
import torch
from mixer_cases import build_mixer, random_input, shaken

from recallgap.models.backends import VARIABLE, in_use
from recallgap.models.mixer import MixerContext

CUDA, BF16 = torch.device("cuda"), torch.bfloat16

GPU_LAYERS = {
    "gla": {"n_heads": 2},
    "retnet": {"n_heads": 2},
    "mamba2": {"d_state": 32, "n_groups": 2},
    "delta_net": {"n_heads": 2},
    "gated_delta_net": {"n_heads": 2, "n_value_heads": 4, "d_key": 48, "d_value": 96},
    "rwkv7": {"value_residual": False},
    "base_conv": {},
    "hyena": {},
}


def mixer_on_gpu(name):
    """The mixer; skips where one of its kernels is not installed."""
    mixer = shaken(build_mixer(name, GPU_LAYERS[name], d_model=128, context_len=1000)).float().to(CUDA)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, "auto")
        absent = [operation for operation, backend in in_use(mixer, BF16).items() if backend == "torch"]
    if absent:
        pytest.skip(f"no kernel is installed for {', '.join(absent)}")
    return mixer


def results_on_gpu(mixer, x_BTD, *, autocast):
    """Output and gradients of every parameter and of x, in float32."""
    mixer.zero_grad()
    x_BTD = x_BTD.clone().requires_grad_()
    context = MixerContext(ids_BT=torch.zeros(x_BTD.shape[:2], dtype=torch.int64, device=CUDA))
    with torch.autocast("cuda", dtype=BF16, enabled=autocast):
        y_BTD = mixer(x_BTD, context)
    (y_BTD.float() * torch.cos(torch.arange(y_BTD.numel(), device=CUDA).view_as(y_BTD))).sum().backward()
    found = {"y": y_BTD, "x": x_BTD.grad} | {name: p.grad for name, p in mixer.named_parameters()}
    return {name: tensor.detach().float() for name, tensor in found.items()}


def errors(found, exact):
    """Root mean square of each difference over that of the exact value."""
    return {name: float((found[name] - x).norm() / x.norm()) for name, x in exact.items()}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device: no kernel can be run here")
@pytest.mark.parametrize("T", [1, 63, 1000])
@pytest.mark.parametrize("name", GPU_LAYERS)
def test_on_a_gpu_kernels_err_no_more_than_our_own_code_in_bfloat16(name, T, monkeypatch):
    """Against our own code in float32. Under autocast ours rounds projections to bfloat16; a kernel also
    rounds what it is given, its inner products and its output. Each rounding is 2^-9 of a number at most, and
    several add up like a root: at most twice the error of ours, and 1 % for where ours has nearly none."""
    monkeypatch.setenv(VARIABLE, "torch")
    mixer = mixer_on_gpu(name)
    x_BTD = random_input(B=2, T=T, d_model=128)[0].float().to(CUDA)
    exact = results_on_gpu(mixer, x_BTD, autocast=False)
    ours = errors(results_on_gpu(mixer, x_BTD, autocast=True), exact)
    monkeypatch.setenv(VARIABLE, "auto")
    kernels = errors(results_on_gpu(mixer, x_BTD, autocast=True), exact)
    assert {n: error for n, error in kernels.items() if not error <= 2 * ours[n] + 0.01} == {}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device: no kernel can be run here")
@pytest.mark.parametrize("name", ["base_conv", "hyena", "delta_net", "mamba2"])
def test_on_a_gpu_short_convolutions_are_the_same_in_float32(name, monkeypatch):
    """Both sum a few products in float32; gradients of taps sum a thousand of them in another order."""
    monkeypatch.setenv(VARIABLE, "torch")
    mixer = mixer_on_gpu(name)
    x_BTD = random_input(B=2, T=1000, d_model=128)[0].float().to(CUDA)
    exact = results_on_gpu(mixer, x_BTD, autocast=False)
    monkeypatch.setenv(VARIABLE, "auto")
    assert max(errors(results_on_gpu(mixer, x_BTD, autocast=False), exact).values()) < 1e-4
