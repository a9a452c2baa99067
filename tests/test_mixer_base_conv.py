"""BaseConv against the paper's equation read literally, its start, and the options that it refuses."""

import math

import pytest
import torch
from convolution_oracle import assert_same, naive_conv
from mixer_cases import CONTEXT_LEN, build_mixer, random_input, shaken

from recallgap.errors import ConfigError
from recallgap.models.mixers.base_conv import BaseConv, position_features

EXACT = 1e-10
VARIANTS = [
    {},
    {"kernel_len": 1},
    {"kernel_len": 20},
    {"kernel_len": None},
    {"kernel_len": None, "implicit": True},
]


def paper(mixer, x_BTD):
    """y = (x W + b1) * (h conv x + b2) (arXiv 2312.04927, Definition 4.1)."""
    T = x_BTD.shape[1]
    if mixer.implicit:
        L = CONTEXT_LEN
        features = [[t / (L - 1), math.cos(math.tau * t / L), math.sin(math.tau * t / L)] for t in range(T)]
        first, second = mixer.filter[0], mixer.filter[2]
        hidden = torch.relu(torch.tensor(features, dtype=torch.float64) @ first.weight.T + first.bias)
        taps_DK = (hidden @ second.weight.T + second.bias).T
    else:
        taps_DK = mixer.taps_DK
    linear_BTD = torch.einsum("btd,ed->bte", x_BTD, mixer.gate.weight) + mixer.gate.bias
    return linear_BTD * (naive_conv(x_BTD, taps_DK) + mixer.bias_D)


@pytest.mark.parametrize("options", VARIANTS)
@pytest.mark.parametrize("T", [1, 2, 13, CONTEXT_LEN])
def test_equals_the_equation_of_the_paper_in_value_and_gradient(options, T):
    mixer = shaken(build_mixer("base_conv", options))
    x_BTD, context = random_input(T=T)
    inputs = [x_BTD.requires_grad_(), *mixer.parameters()]
    assert_same(mixer(x_BTD, context), paper(mixer, x_BTD), inputs, EXACT)


def test_no_residual_inside():
    mixer = build_mixer("base_conv", {})
    with torch.no_grad():
        mixer.gate.weight.zero_()
        mixer.gate.bias.zero_()
    assert not mixer(*random_input()).any()


def assert_uniform(tensor, bound, few=False):
    """Fills (-bound, bound) evenly, as its extremes and standard deviation say; roughly where it has few."""
    assert bound * (0.9 if few else 0.98) < tensor.abs().max() <= bound
    assert tensor.std().item() == pytest.approx(bound / 3**0.5, rel=0.2 if few else 0.05)


def test_starts_as_torchs_linear_and_convolution_do():
    """zoology/mixers/base_conv.py leaves nn.Linear and nn.Conv1d at torch's defaults."""
    mixer = build_mixer("base_conv", {"kernel_len": 4}, d_model=1024)
    assert_uniform(mixer.gate.weight, 1024**-0.5)
    assert_uniform(mixer.gate.bias, 1024**-0.5)
    assert_uniform(mixer.taps_DK, 0.5)
    assert_uniform(mixer.bias_D, 0.5)


def test_a_long_filter_keeps_the_size_of_its_input_whatever_the_context():
    """Where sums of N(0, 1) taps would grow with the context."""
    x_BTD, context = random_input(T=512, d_model=64)
    for implicit in (False, True):
        options = {"kernel_len": None, "implicit": implicit}
        mixer = build_mixer("base_conv", options, d_model=64, context_len=512)
        if not implicit:
            assert_uniform(mixer.taps_DK, 512**-0.5)
            conv_BTD = mixer(x_BTD, context) / mixer.gate(x_BTD) - mixer.bias_D
            assert 0.3 < conv_BTD[:, 256:].std() < 1
        else:
            assert_uniform(mixer.filter[0].weight, 3**-0.5, few=True)
            assert_uniform(mixer.filter[2].weight, 16**-0.5)


def test_features_are_the_time_and_one_period():
    features = position_features(8, 8, like=torch.zeros(1).double())
    assert features[0].tolist() == [0, 1, 0]
    assert features[2].tolist() == pytest.approx([2 / 7, 0, 1])
    assert features[7, 0] == 1


def test_matrices_decay_and_nothing_else():
    rules = build_mixer("base_conv", {"kernel_len": None, "implicit": True}).param_rules()
    assert set(rules) == {"filter", "taps", "bias"}
    assert not any(rule.weight_decay for rule in rules.values())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel_len": 0}, "kernel_len is 0, but a filter needs at least 1 tap"),
        ({"kernel_len": 3, "implicit": True}, "leave kernel_len None"),
    ],
)
def test_refuses(options, message):
    with pytest.raises(ConfigError, match=message):
        BaseConv.Options(**options)
