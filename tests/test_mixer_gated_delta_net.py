"""Gated DeltaNet and the delta rule with decay: recurrence, strong decays, transformers' layer, start."""

import math

import pytest
import torch
from delta_cases import delta_inputs, slow_delta_rule
from mixer_cases import build_mixer, random_input, shaken
from recurrences import LENGTHS, assert_same, assert_same_in_float32, uniform
from torch.nn import functional as F

from recallgap.errors import ConfigError
from recallgap.models.delta_rule import delta_rule
from recallgap.models.mixer import Place
from recallgap.models.mixers.gated_delta_net import GatedDeltaNet

FLOAT32 = 2e-5
"""float32, sums of a few hundred unit-size terms."""
CANCELLING = 1e-4
"""Gradients of decays that hardly matter, as when one key is overwritten: differences of terms of size 20."""


@pytest.mark.parametrize("T", LENGTHS)
def test_chunks_equal_the_recurrence(T):
    assert_same(delta_rule, slow_delta_rule, delta_inputs(T))


@pytest.mark.parametrize("strength", [1.0, 30.0, 200.0])
@pytest.mark.parametrize("every", [1, 5, 64])
def test_strong_decays_and_one_key_stay_finite_and_exact(strength, every):
    """The worst case of a WY form: equal keys, beta near 1, and decays whose inverse overflows."""
    q, k, v, beta, g = delta_inputs(150)
    strong_T = torch.arange(150) % every == 0
    g = torch.where(strong_T[:, None], -strength * uniform(*g.shape), g / 10)
    assert_same_in_float32(
        delta_rule, slow_delta_rule, (q, k[:, :1].expand_as(k), v, 1 - 1e-3 * beta, g), tolerance=CANCELLING
    )


def hf_layer(ours, *, d_model):
    """transformers' Qwen3-Next layer with the weights of ours; its projections interleave key heads."""
    from transformers import Qwen3NextConfig
    from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextGatedDeltaNet

    heads = ours.heads
    config = Qwen3NextConfig(
        hidden_size=d_model,
        linear_num_value_heads=heads.H,
        linear_num_key_heads=heads.G,
        linear_key_head_dim=heads.K,
        linear_value_head_dim=heads.V,
        linear_conv_kernel_dim=heads.query_conv.taps_DK.shape[1],
        rms_norm_eps=1e-5,
        num_hidden_layers=1,
    )
    theirs = Qwen3NextGatedDeltaNet(config, 0)
    inner = [*heads.linears(), ours.gate]
    rates = [ours.beta, ours.step_size]
    by_head = [
        torch.cat([linear.weight.view(heads.G, -1, d_model) for linear in linears], 1)
        for linears in (inner, rates)
    ]
    taps = torch.cat([conv.taps_DK for conv in heads.convs()])
    with torch.no_grad():
        theirs.in_proj_qkvz.weight.copy_(by_head[0].flatten(0, 1))
        theirs.in_proj_ba.weight.copy_(by_head[1].flatten(0, 1))
        theirs.conv1d.weight.copy_(taps.flip(1).unsqueeze(1))
        theirs.dt_bias.copy_(ours.decay.dt_bias_H)
        theirs.A_log.copy_(ours.decay.A_log_H)
        theirs.norm.weight.copy_(ours.norm_V)
        theirs.out_proj.weight.copy_(ours.out.weight)
    return theirs


@pytest.mark.parametrize(
    "options", [{"n_heads": 2}, {"n_heads": 2, "n_value_heads": 4, "d_key": 5, "d_value": 3, "conv_len": 2}]
)
def test_same_output_and_gradient_as_transformers_with_its_weights(options):
    mixer = shaken(build_mixer("gated_delta_net", options)).float()
    theirs = hf_layer(mixer, d_model=16)
    x_BTD, context = random_input(T=150)
    assert_same_in_float32(
        lambda x: mixer(x.float(), context), lambda x: theirs(x.float()), [x_BTD], tolerance=FLOAT32
    )


@torch.no_grad()
def test_starts_as_the_authors_code_does():
    """NVlabs/GatedDeltaNet, lit_gpt/gated_delta_net.py, with `mamba_init` of its lit_gpt/model.py."""
    torch.manual_seed(0)
    options = GatedDeltaNet.Options(n_heads=192, n_value_heads=384)
    mixer = GatedDeltaNet(256, options, Place(layer=0, n_layers=6, context_len=64))
    mixer.init_weights()
    heads = mixer.heads
    rate_H, step_H = mixer.decay.A_log_H.exp(), F.softplus(mixer.decay.dt_bias_H)
    assert 0 < rate_H.min() < 0.5 and 15.5 < rate_H.max() <= 16
    assert float(rate_H.mean()) == pytest.approx(8, rel=0.05)
    assert 0.00099 < step_H.min() < 0.0012 and 0.09 < step_H.max() < 0.101
    assert float(step_H.log().mean()) == pytest.approx(math.log(0.01), rel=0.03)
    for linear in (*heads.linears(), mixer.beta, mixer.step_size, mixer.gate, mixer.out):
        assert linear.bias is None
        assert float(linear.weight.std()) == pytest.approx((3 * linear.in_features) ** -0.5, rel=0.02)
    for conv in heads.convs():
        assert conv.bias_D is None
        assert float(conv.taps_DK.std()) == pytest.approx(0.5 / 3**0.5, rel=0.05)
    assert (mixer.norm_V == 1).all()


def test_widths_are_those_of_the_authors():
    """All keys 3/4 and all values 3/2 of the model's width: 6 D^2 weights, and a few for beta and decay."""
    mixer = build_mixer("gated_delta_net", {}, d_model=64)
    assert mixer.heads.G * mixer.heads.K == 48
    assert mixer.heads.H * mixer.heads.V == 96
    n_weights = sum(p.numel() for p in mixer.parameters())
    assert 6 * 64**2 < n_weights < 6.5 * 64**2


def test_initialisation_fills_every_parameter():
    place = Place(layer=0, n_layers=2, context_len=8)
    mixer = GatedDeltaNet(16, GatedDeltaNet.Options(), place).to("meta").to_empty(device="cpu")
    with torch.no_grad():
        for p in mixer.parameters():
            p.fill_(torch.nan)
    mixer.init_weights()
    assert all(p.isfinite().all() for p in mixer.parameters())


def test_decays_are_not_weight_decayed():
    mixer = build_mixer("gated_delta_net", {})
    free = {
        name
        for name, _ in mixer.named_parameters()
        for part, rule in mixer.param_rules().items()
        if part in name and not rule.weight_decay
    }
    assert free == {"decay.A_log_H", "decay.dt_bias_H", "norm_V"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_heads": 5}, "d_key None"),
        (
            {"n_heads": 2, "n_value_heads": 3, "d_value": 4},
            "2 key heads of width 6 cannot serve 3 value heads",
        ),
        ({"n_heads": 0}, "0 heads"),
        ({"d_key": 0}, "width 0"),
        ({"conv_len": 0}, "conv_len is 0"),
    ],
)
def test_impossible_options_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        build_mixer("gated_delta_net", options)
