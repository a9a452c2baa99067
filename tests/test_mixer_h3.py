"""H3 against its two state-space recurrences read literally, its start as in safari, and what it refuses."""

import math

import pytest
import torch
from convolution_oracle import assert_same
from mixer_cases import CONTEXT_LEN, D_MODEL, build_mixer, random_input, shaken

from recallgap.errors import ConfigError
from recallgap.models.mixer import Place
from recallgap.models.mixers.h3 import H3, powers

EXACT = 1e-10
VARIANTS = [{"d_state": 8}, {"d_state": 64}, {"d_state": 2, "head_dim": 4}, {"d_state": 6, "head_dim": 2}]


def recurrence(mixer, x_BTD):
    """Token by token: shift model of k, product with v, diagonal model of that, product with q."""
    (B, T, D), M, N = x_BTD.shape, mixer.M, mixer.N
    q, k, v = (linear(x_BTD) for linear in (mixer.query, mixer.key, mixer.value))
    a = -mixer.log_rate_HP.exp() + 1j * mixer.freq_HP
    dt = mixer.log_dt_H.exp().unsqueeze(1)
    A = (1 + dt * a / 2) / (1 - dt * a / 2)
    B_in = dt * torch.view_as_complex(mixer.diag_in_HP2) / (1 - dt * a / 2)
    C = torch.view_as_complex(mixer.diag_out_HP2)
    s = torch.zeros(B, D, N, dtype=torch.float64)
    z = torch.zeros(B, D // M, M, M, N // 2, dtype=torch.complex128)
    columns = []
    for t in range(T):
        s = torch.cat([torch.zeros(B, D, 1).double(), s[..., :-1]], -1) + mixer.shift_in_DN * k[:, t, :, None]
        shifted = (mixer.shift_out_DN * s).sum(-1) + mixer.shift_skip_D * k[:, t]
        kv = torch.einsum("bhi,bhj->bhij", shifted.view(B, -1, M), v[:, t].reshape(B, -1, M))
        z = A[:, None, None] * z + B_in[:, None, None] * kv.unsqueeze(-1)
        o = 2 * (C[:, None, None] * z).sum(-1).real + mixer.diag_skip_H[:, None, None] * kv
        columns.append(torch.einsum("bhi,bhij->bhj", q[:, t].reshape(B, -1, M), o).reshape(B, D))
    return mixer.out(torch.stack(columns, 1))


@pytest.mark.parametrize("options", VARIANTS)
@pytest.mark.parametrize("T", [1, 2, 11, CONTEXT_LEN, 70])
def test_equals_the_recurrence_in_value_and_gradient(options, T):
    mixer = shaken(build_mixer("h3", options))
    x_BTD, context = random_input(T=T)
    inputs = [x_BTD.requires_grad_(), *mixer.parameters()]
    assert_same(mixer(x_BTD, context), recurrence(mixer, x_BTD), inputs, EXACT)


def test_the_kernel_keeps_its_phase_over_a_long_context():
    """float32 parameters, against float64: powers are exact to rounding however far they go."""
    mixer = build_mixer("h3", {}, d_model=64)
    expected_HT = mixer._diag_kernel(8192)
    got_HT = mixer.float()._diag_kernel(8192)
    assert got_HT.dtype == torch.float32
    exact_HT = mixer.double()._diag_kernel(8192)
    assert (got_HT - exact_HT).abs().max() < 1e-6 * exact_HT.abs().max()
    torch.testing.assert_close(exact_HT, expected_HT, atol=1e-3, rtol=0)


def test_powers():
    bases = [0.9 + 0.3j, -0.5j, 0j]
    table, after = powers(torch.tensor([bases], dtype=torch.complex128), 8)
    for p, base in enumerate(bases):
        assert table[0, p].tolist() == pytest.approx([base**j for j in range(8)], abs=EXACT)
        assert after[0, p].item() == pytest.approx(base**8, abs=EXACT)


def test_a_mode_that_forgets_at_once_has_a_gradient():
    """A = 0 where dt a = -2: a logarithm of A would make the gradient nan."""
    mixer = build_mixer("h3", {"d_state": 2})
    with torch.no_grad():
        mixer.freq_HP.zero_()
        mixer.log_rate_HP.fill_(math.log(2))
        mixer.log_dt_H.zero_()
    assert not mixer._modes()[0].any()
    mixer(*random_input()).square().sum().backward()
    assert all(p.grad.isfinite().all() for p in mixer.parameters())


def test_starts_as_in_safari():
    """ssm/ss_kernel.py and ss_kernel_diag.py, measure diag-lin; matrices by long_conv_lm.py:_init_weights."""
    mixer = build_mixer("h3", {}, d_model=512, n_layers=8)
    for linear in (mixer.query, mixer.key, mixer.value, mixer.out):
        assert linear.weight.std().item() == pytest.approx(0.02, rel=0.02)
        assert not linear.bias.any()
    assert torch.equal(mixer.shift_in_DN, torch.eye(64)[0].double().expand(512, 64))
    assert mixer.shift_out_DN.abs().max().item() == pytest.approx(1 / 8, rel=0.01)
    assert mixer.shift_out_DN.std().item() == pytest.approx(1 / 8 / 3**0.5, rel=0.02)
    assert torch.allclose(-mixer.log_rate_HP.exp(), torch.tensor(-0.5).double())
    assert torch.allclose(mixer.freq_HP[3], math.pi * torch.arange(32).double())
    assert torch.equal(torch.view_as_complex(mixer.diag_in_HP2.detach()), torch.ones(512, 32) + 0j)
    assert mixer.diag_out_HP2.square().sum(2).mean().item() == pytest.approx(1, rel=0.03)
    for skip in (mixer.shift_skip_D, mixer.diag_skip_H):
        assert skip.std().item() == pytest.approx(1, rel=0.1)
    log_dt = mixer.log_dt_H / math.log(10)
    assert -3 < log_dt.min() < -2.98
    assert -1.02 < log_dt.max() < -1
    assert log_dt.mean().item() == pytest.approx(-2, abs=0.1)


def test_the_shift_model_starts_as_a_convolution_with_its_output_matrix():
    mixer = build_mixer("h3", {"d_state": 8})
    taps_DN = mixer._shift_kernel()
    taps_DN[:, 0] -= mixer.shift_skip_D
    torch.testing.assert_close(taps_DN, mixer.shift_out_DN)


def test_state_matrices_learn_at_a_bounded_rate_without_decay():
    mixer = build_mixer("h3", {})
    rules = mixer.param_rules()
    slow = {
        name for name, _ in mixer.named_parameters() for key in rules if key in name and rules[key].lr_max
    }
    assert slow == {"log_dt_H", "log_rate_HP", "freq_HP", "shift_in_DN", "diag_in_HP2"}
    assert {rules[key].lr_max for key in rules} == {1e-3, None}
    assert not any(rule.weight_decay for rule in rules.values())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"d_state": 7}, "d_state is 7, but modes come in pairs: an even number"),
        ({"d_state": 0}, "d_state is 0"),
        ({"dt_min": 0.2}, "dt_min 0.2 and dt_max 0.1, but 0 < dt_min <= dt_max is needed"),
    ],
)
def test_refuses(options, message):
    with pytest.raises(ConfigError, match=message):
        H3.Options(**options)


def test_refuses_heads_that_do_not_divide_the_width():
    with pytest.raises(ConfigError, match=f"heads of 3 channels do not divide a width of {D_MODEL}"):
        H3(D_MODEL, H3.Options(head_dim=3), Place(layer=0, n_layers=1, context_len=8))
