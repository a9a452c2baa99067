"""RetNet: parallel, recurrent and chunked retention are one; the scalings of its source; initial weights."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mixer_cases import build_mixer, random_input, shaken

from recallgap.errors import ConfigError
from recallgap.models.mixer import options_of
from recallgap.models.mixers import retnet
from recallgap.models.mixers.retnet import RetNet, log_decays, turned

EXACT = 1e-10
"""float64, sums of a few hundred terms of unit size."""


def gammas(H):
    return [1 - 2.0 ** (-5 - h) for h in range(H)]


def decay_matrix(gamma, T):
    rows = [[gamma ** (t - s) if s <= t else 0.0 for s in range(T)] for t in range(T)]
    return torch.tensor(rows, dtype=torch.float64)


def parallel(q_BTHE, k_BTHE, v_BTHF):
    """(Q K^T * D) V with D = gamma^(t - s) below the diagonal."""
    T, H = q_BTHE.shape[1:3]
    heads = []
    for h, gamma in enumerate(gammas(H)):
        scores_BTT = (q_BTHE[:, :, h] @ k_BTHE[:, :, h].mT) * decay_matrix(gamma, T)
        heads.append(scores_BTT @ v_BTHF[:, :, h])
    return torch.stack(heads, dim=2)


def recurrent(q_BTHE, k_BTHE, v_BTHF):
    """S = gamma S + k^T v, o = q S, one position at a time."""
    gamma_H11 = torch.tensor(gammas(q_BTHE.shape[2]), dtype=torch.float64)[:, None, None]
    S_BHEF, out = 0.0, []
    for t in range(q_BTHE.shape[1]):
        S_BHEF = gamma_H11 * S_BHEF + k_BTHE[:, t].unsqueeze(-1) * v_BTHF[:, t].unsqueeze(-2)
        out.append((q_BTHE[:, t].unsqueeze(-2) @ S_BHEF).squeeze(-2))
    return torch.stack(out, dim=1)


def chunked(q_BTHE, k_BTHE, v_BTHF):
    rule = retnet._Rule(log_decays(q_BTHE.shape[2], like=q_BTHE), min(retnet.CHUNK, q_BTHE.shape[1]))
    return retnet.run(rule, retnet.CHUNK, q_BTHE, k_BTHE, v_BTHF)


def values_and_gradients(function, inputs):
    o_BTHF = function(*inputs)
    weights = torch.linspace(-1, 1, o_BTHF.numel(), dtype=o_BTHF.dtype).view_as(o_BTHF)
    return o_BTHF, torch.autograd.grad((weights * o_BTHF).sum(), inputs)


@settings(deadline=None, max_examples=12)
@given(T=st.integers(1, 150), H=st.integers(1, 6), E=st.integers(1, 5), width=st.integers(1, 5))
def test_parallel_recurrent_and_chunked_forms_are_equal_in_values_and_gradients(T, H, E, width):
    generator = torch.Generator().manual_seed(T)
    shapes = [(2, T, H, E), (2, T, H, E), (2, T, H, width)]
    inputs = [torch.randn(s, generator=generator, dtype=torch.float64).requires_grad_() for s in shapes]
    expected, expected_grads = values_and_gradients(parallel, inputs)
    for form in (recurrent, chunked):
        o_BTHF, grads = values_and_gradients(form, inputs)
        torch.testing.assert_close(o_BTHF, expected, atol=EXACT, rtol=EXACT)
        torch.testing.assert_close(grads, expected_grads, atol=EXACT, rtol=EXACT)


def test_pairs_of_neighbouring_channels_turn_by_the_angles_of_the_source():
    x = torch.randn(1, 9, 1, 8, dtype=torch.float64)
    y = turned(x, first=3)
    for t in range(9):
        for i in range(4):
            angle = (3 + t) * 10000 ** (-i / 3)
            a, b = x[0, t, 0, 2 * i], x[0, t, 0, 2 * i + 1]
            expected = [a * math.cos(angle) - b * math.sin(angle), b * math.cos(angle) + a * math.sin(angle)]
            torch.testing.assert_close(y[0, t, 0, 2 * i : 2 * i + 2], torch.stack(expected))


def published_layer(mixer, x_BTD):
    """The authors' parallel form with its two scalings of a row, from the mixer's weights."""
    B, T, _ = x_BTD.shape
    H, E, width = mixer.n_heads, mixer.d_key, mixer.d_value
    k_BTX = mixer.key(x_BTD) * E**-0.5
    q_BTHE, k_BTHE = (turned(z.view(B, T, H, E), first=0) for z in (mixer.query(x_BTD), k_BTX))
    v_BTHF = mixer.value(x_BTD).view(B, T, H, width)
    heads = []
    for h, gamma in enumerate(gammas(H)):
        decay_TT = decay_matrix(gamma, T)
        decay_TT = decay_TT / decay_TT.sum(-1, keepdim=True).sqrt()
        scores_BTT = (q_BTHE[:, :, h] @ k_BTHE[:, :, h].mT) * decay_TT
        scores_BTT = scores_BTT / scores_BTT.abs().sum(-1, keepdim=True).clamp(min=1)
        o_BTF = scores_BTT @ v_BTHF[:, :, h]
        heads.append(o_BTF / o_BTF.square().mean(-1, keepdim=True).sqrt())
    gate_BTX = mixer.gate(x_BTD)
    return mixer.out(gate_BTX * gate_BTX.sigmoid() * torch.cat(heads, dim=-1))


def test_the_scalings_that_are_left_out_vanish_under_the_norm():
    mixer = shaken(build_mixer("retnet", {"n_heads": 2, "norm_eps": 0.0}))
    x_BTD, context = random_input(T=90)
    ours_BTD = mixer(3 * x_BTD, context)
    torch.testing.assert_close(ours_BTD, published_layer(mixer, 3 * x_BTD), atol=1e-9, rtol=1e-9)


def test_decays_are_not_rounded_under_autocast():
    """In bfloat16 the decays of heads 5 and later are 1, and the last head would forget nothing."""
    mixer = build_mixer("retnet", {"n_heads": 8}).float()
    log_gamma_H = log_decays(8, like=mixer.query.weight)
    assert log_gamma_H.dtype == torch.float32
    torch.testing.assert_close(log_gamma_H.exp().double(), torch.tensor(gammas(8), dtype=torch.float64))
    x_BTD, context = random_input(T=300)
    exact = mixer(x_BTD.float(), context)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = mixer(x_BTD.float(), context)
    assert (rounded - exact).norm() < 0.02 * exact.norm()


@pytest.mark.parametrize("options", [{}, {"d_value": 16}])
def test_initial_weights_are_those_of_torchscale(options):
    """Xavier uniform of gain 2^-2.5, and of gain 2^-1 for the projection out."""
    mixer = build_mixer("retnet", options, d_model=128)
    gains = {"query": 2**-2.5, "key": 2**-2.5, "value": 2**-2.5, "gate": 2**-2.5, "out": 0.5}
    assert gains.keys() == {name.removesuffix(".weight") for name, _ in mixer.named_parameters()}
    for name, gain in gains.items():
        weight = mixer.get_parameter(f"{name}.weight").detach()
        bound = gain * math.sqrt(6 / sum(weight.shape))
        assert 0.99 * bound < float(weight.abs().max()) <= bound, name
        assert float(weight.std()) == pytest.approx(bound / math.sqrt(3), rel=0.02), name


def test_options_that_cannot_be_built_are_refused():
    with pytest.raises(ConfigError, match="3 heads do not divide a width of 16"):
        build_mixer("retnet", {"n_heads": 3})
    with pytest.raises(ConfigError, match="keys of a head are 1 wide"):
        build_mixer("retnet", {"n_heads": 16})
    with pytest.raises(ConfigError, match="d_value is 0"):
        build_mixer("retnet", {"d_value": 0})
    with pytest.raises(ConfigError, match="option of retnet 'heads'"):
        options_of("retnet", RetNet, {"heads": 2})
