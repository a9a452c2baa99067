"""Hyena against its recurrence read literally, its filter's start as in safari, and what it refuses."""

import math

import pytest
import torch
from convolution_oracle import assert_same, naive_conv
from mixer_cases import CONTEXT_LEN, D_MODEL, build_mixer, random_input, shaken

from recallgap.errors import ConfigError
from recallgap.models.mixers.hyena import PILE, Hyena, position_features

EXACT = 1e-10
VARIANTS = [
    {},
    {"order": 3, "short_len": 4, "n_features": 5, "sin_freq": 14.0},
    {"order": 5, "short_len": 1, "d_filter": 8},
]


def naive_filter(mixer, channel, t):
    """Tap t of a filter's channel (numbered over all filters), from the features up."""
    L, N = CONTEXT_LEN, mixer.options.order
    h = mixer.features_LE[t]
    for layer in [mixer.filter_in, *mixer.filter_inner]:
        h = torch.sin(mixer.filter_freq_F * (layer.weight @ h + layer.bias))
    slow, fast = abs(math.log(0.01)) / 1.5, abs(math.log(0.01)) / 0.3
    decay = slow + (fast - slow) * channel / ((N - 1) * D_MODEL - 1)
    return (mixer.filter_out.weight[channel] @ h) * math.exp(-decay * t / (L - 1))


def recurrence(mixer, x_BTD):
    """v <- h_n conv (x_n v) + d_n (x_n v) for n = N - 1 .. 1, then W_o (x_0 v)."""
    N, T = mixer.options.order, x_BTD.shape[1]
    projected = x_BTD @ mixer.inputs.weight.T + mixer.inputs.bias
    short = naive_conv(projected, mixer.short_DK) + mixer.short_bias_D
    *x, v = short.split(D_MODEL, dim=-1)
    for used, n in enumerate(range(N - 1, 0, -1)):
        channels = [d * (N - 1) + used for d in range(D_MODEL)]
        kernel_DT = torch.stack(
            [torch.stack([naive_filter(mixer, c, t) for t in range(T)]) for c in channels]
        )
        z = x[n] * v
        v = naive_conv(z, kernel_DT) + mixer.skip_ND[used] * z
    return (x[0] * v) @ mixer.out.weight.T + mixer.out.bias


@pytest.mark.parametrize("options", VARIANTS)
@pytest.mark.parametrize("T", [1, 7, CONTEXT_LEN])
def test_equals_the_recurrence_in_value_and_gradient(options, T):
    mixer = shaken(build_mixer("hyena", options))
    x_BTD, context = random_input(T=T)
    inputs = [x_BTD.requires_grad_(), *mixer.parameters()]
    assert_same(mixer(x_BTD, context), recurrence(mixer, x_BTD), inputs, EXACT)


def test_features_are_the_time_and_bands_of_cosine_and_sine():
    features_LE = position_features(9, 7)
    angle = math.tau * 4 / 9
    frequencies = [1e-4, (2 + 1e-4) / 2, 2]
    expected = [
        4 / 8,
        *(math.cos(f * angle) for f in frequencies),
        *(-math.sin(f * angle) for f in frequencies),
    ]
    assert features_LE[4].tolist() == pytest.approx(expected)


def test_a_filter_is_the_same_whatever_part_of_the_context_is_used():
    mixer = build_mixer("hyena", {})
    torch.testing.assert_close(mixer._filters(5), mixer._filters(CONTEXT_LEN)[..., :5])


def test_the_filter_is_made_in_float32_under_autocast():
    mixer = build_mixer("hyena", PILE).float()
    expected = mixer._filters(CONTEXT_LEN)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(mixer._filters(CONTEXT_LEN), expected)


def filter_std(options, **place):
    """Standard deviation of the first taps, where nothing has decayed, without d."""
    mixer = build_mixer("hyena", options, d_model=128, context_len=1024, **place)
    with torch.no_grad():
        mixer.skip_ND.zero_()
    return mixer._filters(64).std().item()


def test_the_filter_does_not_start_dead():
    """safari's language models start theirs at 2e-5 with its default frequency, at 0.1 with the Pile's."""
    assert 5e-3 < filter_std({}) < 0.2
    assert 0.02 < filter_std(PILE) < 0.2
    assert filter_std({"filter_std": 0.02}) < 1e-4


def test_starts_as_in_safari():
    """Projections by long_conv_lm.py:_init_weights, the short filter as Conv1d's own, d = randn."""
    mixer = build_mixer("hyena", {}, d_model=256, n_layers=8)
    assert mixer.inputs.weight.std().item() == pytest.approx(0.02, rel=0.02)
    assert mixer.out.weight.std().item() == pytest.approx(0.02 / 4, rel=0.02)
    assert not mixer.inputs.bias.any()
    assert not mixer.out.bias.any()
    for short in (mixer.short_DK, mixer.short_bias_D):
        assert short.abs().max().item() == pytest.approx(3**-0.5, rel=0.02)
        assert short.std().item() == pytest.approx(1 / 3, rel=0.05)
    assert mixer.skip_ND.std().item() == pytest.approx(1, rel=0.15)
    assert torch.equal(mixer.filter_freq_F, torch.ones(64).double())
    assert mixer.filter_inner[0].weight.std().item() == pytest.approx(1 / 8 / 3**0.5, rel=0.05)
    assert torch.equal(mixer.features_LE, position_features(CONTEXT_LEN, 3))


def test_the_start_on_the_pile():
    mixer = build_mixer("hyena", PILE)
    assert torch.equal(mixer.filter_freq_F, torch.full((64,), 14.0).double())
    assert mixer.filter_inner[1].weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert not mixer.filter_in.bias.any()


def test_features_learn_slowly_and_filters_do_not_decay():
    rules = build_mixer("hyena", {}).param_rules()
    assert rules["features"].lr_max == 1e-5
    assert build_mixer("hyena", PILE).param_rules()["features"].lr_max is None
    assert not any(rule.weight_decay for rule in rules.values())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"order": 1}, "order is 1, but it needs at least 2 gates"),
        ({"short_len": 0}, "short_len is 0 and d_filter 64"),
        ({"d_filter": 0}, "d_filter 0"),
        ({"n_features": 4}, "n_features is 4, but the time and pairs of cosine and sine make an odd number"),
        ({"n_features": 1}, "at least 3"),
    ],
)
def test_refuses(options, message):
    with pytest.raises(ConfigError, match=message):
        Hyena.Options(**options)
