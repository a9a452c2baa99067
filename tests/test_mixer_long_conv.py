"""The long convolution against its equation read literally, its start as in safari, and what it refuses."""

import pytest
import torch
from convolution_oracle import assert_same, naive_conv
from mixer_cases import CONTEXT_LEN, build_mixer, random_input, shaken
from torch.nn import functional as F

from recallgap.errors import ConfigError
from recallgap.models.mixers.long_conv import LongConv

EXACT = 1e-10


def squash(kernel, threshold):
    """relu(|k| - lam) sign(k), as safari's long_conv_kernel.py writes it."""
    return torch.relu(kernel.abs() - threshold) * torch.sign(kernel)


def equation(mixer, x_BTD):
    """GLU(W GELU(h conv x + d * x) + b), the results of the kernels side by side."""
    threshold = mixer.options.threshold
    mixed = [
        naive_conv(x_BTD, squash(kernel_DK, threshold)) + skip_D * x_BTD
        for kernel_DK, skip_D in zip(mixer.kernel_CDK, mixer.skip_CD, strict=True)
    ]
    activated = 0.5 * (z := torch.cat(mixed, -1)) * (1 + torch.erf(z / 2**0.5))
    a, b = (activated @ mixer.out.weight.T + mixer.out.bias).chunk(2, -1)
    return a * torch.sigmoid(b)


@pytest.mark.parametrize("options", [{}, {"n_kernels": 3, "threshold": 0.05}, {"threshold": 0.0}])
@pytest.mark.parametrize("T", [1, 13, CONTEXT_LEN])
def test_equals_the_equation_in_value_and_gradient(options, T):
    mixer = shaken(build_mixer("long_conv", options)).eval()
    x_BTD, context = random_input(T=T)
    inputs = [x_BTD.requires_grad_(), *mixer.parameters()]
    assert_same(mixer(x_BTD, context), equation(mixer, x_BTD), inputs, EXACT)


def test_taps_below_the_threshold_are_zero_and_get_no_gradient():
    mixer = build_mixer("long_conv", {"kernel_dropout": 0.0})
    x_BTD, context = random_input()
    mixer(x_BTD, context).square().sum().backward()
    small = mixer.kernel_CDK.abs() <= 0.003
    assert torch.equal(mixer.kernel_CDK.grad == 0, small)
    assert 0.8 < small.double().mean() < 0.95


def test_dropout_falls_on_the_kernel_in_training_alone():
    mixer = shaken(build_mixer("long_conv", {"kernel_dropout": 0.5}, context_len=400))
    kept = squash(mixer.kernel_CDK, 0.003)
    torch.manual_seed(0)
    kernel_CDK = mixer._kernels(400)
    kernel_CDK[..., 0] -= mixer.skip_CD
    alive = kernel_CDK.abs() > EXACT
    assert alive.double().mean().item() == pytest.approx(0.5, abs=0.05)
    torch.testing.assert_close(kernel_CDK[alive], 2 * kept[alive])
    assert torch.equal(mixer.eval()._kernels(400), mixer._kernels(400))


def test_starts_as_in_safari():
    """k = 0.002 randn, D = randn; W by long_conv_lm.py:_init_weights 0.02 / sqrt(2 layers), bias 0."""
    mixer = build_mixer("long_conv", {}, d_model=256, n_layers=8)
    assert mixer.kernel_CDK.std().item() == pytest.approx(0.002, rel=0.05)
    assert mixer.skip_CD.std().item() == pytest.approx(1, rel=0.15)
    assert mixer.out.weight.std().item() == pytest.approx(0.02 / 4, rel=0.02)
    assert not mixer.out.bias.any()
    assert mixer.kernel_CDK.mean().abs() < 1e-4


def test_the_kernel_learns_at_a_bounded_rate():
    assert build_mixer("long_conv", {}).param_rules()["kernel"].lr_max == 1e-3
    assert build_mixer("long_conv", {"kernel_lr": None}).param_rules()["kernel"].lr_max is None
    assert F.softshrink(torch.tensor([-0.004]), 0.003).item() == pytest.approx(-0.001)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_kernels": 0}, "n_kernels is 0, but a channel needs at least 1"),
        ({"threshold": -0.1}, "threshold is -0.1, but it cannot be negative"),
        ({"kernel_dropout": 1.0}, "kernel_dropout is 1.0, but a probability below 1 is needed"),
    ],
)
def test_refuses(options, message):
    with pytest.raises(ConfigError, match=message):
        LongConv.Options(**options)
