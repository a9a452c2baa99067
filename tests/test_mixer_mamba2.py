"""Mamba-2: its recurrence, its start, and transformers' mixer with the same weights."""

import math

import pytest
import torch
from mixer_cases import build_mixer, random_input, run, shaken
from recurrences import LENGTHS, assert_same, assert_same_in_float32, normal, uniform
from torch import nn
from torch.nn import functional as F

from recallgap.errors import ConfigError
from recallgap.models.mixer import Place
from recallgap.models.mixers.mamba2 import Mamba2
from recallgap.models.short_conv import ShortConv
from recallgap.models.ssd import ssd
from recallgap.models.step_decay import StepDecay

FLOAT32 = 2e-5
"""float32, sums of a few hundred unit-size terms."""


def slow_ssd(v_BTGRP, g_BTGR, k_BTGN, q_BTGN):
    """The recurrence, read literally."""
    B, T, G, R, P = v_BTGRP.shape
    S_BGRNP, outputs = v_BTGRP.new_zeros(B, G, R, k_BTGN.shape[-1], P), []
    for t in range(T):
        written = torch.einsum("bgn,bgrp->bgrnp", k_BTGN[:, t], v_BTGRP[:, t])
        S_BGRNP = g_BTGR[:, t, ..., None, None].exp() * S_BGRNP + written
        outputs.append(torch.einsum("bgrnp,bgn->bgrp", S_BGRNP, q_BTGN[:, t]))
    return torch.stack(outputs, 1)


def ssd_inputs(T, *, B=2, G=2, R=3, P=4, N=5):
    return normal(B, T, G, R, P), -uniform(B, T, G, R), normal(B, T, G, N, seed=1), normal(B, T, G, N, seed=2)


@pytest.mark.parametrize("T", LENGTHS)
def test_chunks_equal_the_recurrence(T):
    assert_same(ssd, slow_ssd, ssd_inputs(T))


def test_chunks_equal_the_recurrence_for_one_group_and_no_decay():
    v, g, k, q = ssd_inputs(70, G=1, R=2)
    assert_same(ssd, slow_ssd, (v, 0 * g, k, q))


@pytest.mark.parametrize("strength", [1.0, 30.0, 200.0])
def test_strong_decays_stay_finite_and_exact(strength):
    """One head forgets all at every 5th step, another in no step."""
    v, g, k, q = ssd_inputs(150)
    g = -strength * (torch.arange(150) % 5 == 0).double()[:, None, None] * uniform(2, 150, 2, 3)
    g[..., 0] = 0
    assert_same_in_float32(ssd, slow_ssd, (v, g, k, q), tolerance=FLOAT32)


def test_a_short_convolution_is_that_of_torch():
    conv = ShortConv(6, 4, bias=True).double()
    conv.init_weights()
    theirs = nn.Conv1d(6, 6, 4, groups=6, padding=3).double()
    with torch.no_grad():
        theirs.weight.copy_(conv.taps_DK.flip(1).unsqueeze(1))
        theirs.bias.copy_(conv.bias_D)
    for T in (1, 2, 3, 4, 90):
        x = normal(2, T, 6)
        assert_same(conv, lambda x: F.silu(theirs(x.mT)[..., : x.shape[1]]).mT, [x])


def hf_mixer(ours, *, d_model, n_layers=1):
    """transformers' Mamba-2 mixer with the weights of ours."""
    from transformers import Mamba2Config
    from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer

    G, R, P = ours.heads_GRP
    config = Mamba2Config(
        hidden_size=d_model,
        num_heads=G * R,
        head_dim=P,
        state_size=ours.N,
        n_groups=G,
        expand=ours.d_inner // d_model,
        conv_kernel=ours.conv.taps_DK.shape[1],
        num_hidden_layers=n_layers,
        chunk_size=32,
    )
    theirs = Mamba2Mixer(config, 0)
    with torch.no_grad():
        theirs.in_proj.weight.copy_(ours.inner.weight)
        theirs.conv1d.weight.copy_(ours.conv.taps_DK.flip(1).unsqueeze(1))
        theirs.conv1d.bias.copy_(ours.conv.bias_D)
        theirs.dt_bias.copy_(ours.decay.dt_bias_H)
        theirs.A_log.copy_(ours.decay.A_log_H)
        theirs.D.copy_(ours.skip_H)
        theirs.norm.weight.copy_(ours.norm_E)
        theirs.out_proj.weight.copy_(ours.out.weight)
    return theirs


@pytest.mark.parametrize(
    "options", [{"d_head": 8, "d_state": 16}, {"d_head": 4, "d_state": 5, "n_groups": 2, "conv_len": 3}]
)
def test_same_output_and_gradient_as_transformers_with_its_weights(options):
    mixer = shaken(build_mixer("mamba2", options)).float()
    theirs = hf_mixer(mixer, d_model=16)
    x_BTD, context = random_input(T=100)
    assert_same_in_float32(
        lambda x: mixer(x.float(), context), lambda x: theirs(x.float()), [x_BTD], tolerance=FLOAT32
    )


def big(n_layers=6):
    torch.manual_seed(0)
    options = Mamba2.Options(d_head=1, d_state=32)
    mixer = Mamba2(256, options, Place(layer=0, n_layers=n_layers, context_len=64))
    mixer.init_weights()
    return mixer


@torch.no_grad()
def test_starts_as_mamba_ssm_does():
    """mamba_ssm/modules/mamba2.py; W_out by models/mixer_seq_simple.py, 2 residual additions a layer."""
    mixer = big(n_layers=6)
    rate_H, step_H = mixer.decay.A_log_H.exp(), F.softplus(mixer.decay.dt_bias_H)
    assert 1 <= rate_H.min() < 1.5 and 15.5 < rate_H.max() <= 16
    assert float(rate_H.mean()) == pytest.approx(8.5, rel=0.05)
    assert 0.00099 < step_H.min() < 0.0012 and 0.09 < step_H.max() < 0.101
    assert float(step_H.log().mean()) == pytest.approx(math.log(0.01), rel=0.03)
    assert float(mixer.inner.weight.abs().max()) == pytest.approx(256**-0.5, rel=0.01)
    assert float(mixer.inner.weight.std()) == pytest.approx((3 * 256) ** -0.5, rel=0.01)
    assert float(mixer.conv.taps_DK.abs().max()) == pytest.approx(0.5, rel=0.01)
    assert float(mixer.conv.taps_DK.std()) == pytest.approx(0.5 / 3**0.5, rel=0.05)
    assert float(mixer.conv.bias_D.std()) == pytest.approx(0.5 / 3**0.5, rel=0.1)
    assert float(mixer.out.weight.std()) == pytest.approx((3 * 512 * 12) ** -0.5, rel=0.01)
    assert (mixer.skip_H == 1).all() and (mixer.norm_E == 1).all()


def test_initialisation_fills_every_parameter():
    mixer = Mamba2(16, Mamba2.Options(d_head=8), Place(layer=0, n_layers=2, context_len=8)).to("meta")
    mixer.to_empty(device="cpu")
    with torch.no_grad():
        for p in mixer.parameters():
            p.fill_(torch.nan)
    mixer.init_weights()
    assert all(p.isfinite().all() for p in mixer.parameters())


def test_a_loaded_decay_is_not_drawn_again():
    """transformers marks what it has loaded; see recallgap/models/mixer.py."""
    decay = StepDecay(4, lowest_rate=1.0)
    decay.init_weights()
    decay.A_log_H._is_hf_initialized = True
    loaded_H, drawn_H = decay.A_log_H.clone(), decay.dt_bias_H.clone()
    decay.init_weights()
    assert torch.equal(decay.A_log_H, loaded_H)
    assert not torch.equal(decay.dt_bias_H, drawn_H)


def test_decays_steps_and_skip_are_not_weight_decayed():
    mixer = build_mixer("mamba2", {"d_head": 8})
    ruled = {
        name: next((rule for part, rule in mixer.param_rules().items() if part in name), None)
        for name, _ in mixer.named_parameters()
    }
    free = {name for name, rule in ruled.items() if rule is not None and not rule.weight_decay}
    assert free == {"decay.A_log_H", "decay.dt_bias_H", "skip_H", "norm_E", "conv.bias_D"}


def test_decays_are_float32_under_autocast():
    """In bfloat16 a step of 0.001 at a rate of 1 keeps the state forever: 1 - 0.001 rounds to 1."""
    mixer = build_mixer("mamba2", {"d_head": 8}).float()
    x_BTD, context = random_input(T=64)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        g_BTH, step_BTH = mixer.decay(mixer.inner(x_BTD.float())[..., -4:])
        y_BTD = run(mixer, x_BTD.float(), context)
    assert g_BTH.dtype == step_BTH.dtype == torch.float32
    exact_BTD = run(mixer, x_BTD.float(), context).detach()
    torch.testing.assert_close(y_BTD.float(), exact_BTD, atol=0.02 * float(exact_BTD.abs().max()), rtol=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"d_head": 7}, "not 1 groups of heads 7 wide"),
        ({"d_head": 8, "n_groups": 3}, "not 3 groups"),
        ({"d_state": 0}, "at least 1"),
        ({"d_head": 8, "conv_len": 0}, "conv_len is 0"),
    ],
)
def test_impossible_options_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        build_mixer("mamba2", options)
