"""DeltaNet and the delta rule without decay: the recurrence, repeated keys, the start."""

import pytest
import torch
from delta_cases import delta_inputs, slow_delta_rule
from mixer_cases import build_mixer, random_input, run, shaken
from recurrences import LENGTHS, assert_same, assert_same_in_float32, normal
from torch.nn import functional as F

from recallgap.errors import ConfigError
from recallgap.models.delta_heads import unit
from recallgap.models.delta_rule import delta_rule
from recallgap.models.mixer import Place
from recallgap.models.mixers.delta_net import DeltaNet

FLOAT32 = 2e-5
"""float32, sums of a few hundred unit-size terms."""


def slow(q, k, v, beta):
    return slow_delta_rule(q, k, v, beta, 0 * beta)


@pytest.mark.parametrize("T", LENGTHS)
def test_chunks_equal_the_recurrence(T):
    assert_same(delta_rule, slow, delta_inputs(T)[:4])


@pytest.mark.parametrize("beta", [0.0, 0.5, 0.999, 1.0])
def test_one_key_again_and_again_is_exact_in_float32(beta):
    """Powers of the triangular matrix would reach 1e18 here; substitution does not."""
    q, k, v, betas, _ = delta_inputs(200)
    k = k[:, :1].expand_as(k)
    assert_same_in_float32(delta_rule, slow, (q, k, v, beta + 0 * betas), tolerance=FLOAT32)


def test_two_keys_that_alternate_are_exact_in_float32():
    q, k, v, betas, _ = delta_inputs(200)
    k = k[:, :2].repeat(1, 100, 1, 1)
    assert_same_in_float32(delta_rule, slow, (q, k, v, 1 - 1e-3 * betas), tolerance=FLOAT32)


def test_recalls_the_last_value_of_each_key():
    """With orthogonal keys and beta = 1 the state is a table: what a key was last given comes back."""
    keys = torch.eye(4, dtype=torch.float64)[torch.arange(100) % 4][None, :, None]
    values = normal(1, 100, 1, 5)
    recalled = delta_rule(keys.roll(1, 1), keys, values, torch.ones(1, 100, 1, dtype=torch.float64))
    torch.testing.assert_close(recalled[:, 4:], values[:, 3:-1])


def slow_layer(mixer, x_BTD):
    """The layer of fla/layers/delta_net.py, from its formulae."""
    B, T, _ = x_BTD.shape
    heads, columns = mixer.heads, []
    for linear, conv in zip(heads.linears(), heads.convs(), strict=True):
        padded = F.pad(linear(x_BTD), (0, 0, 3, 0))
        columns.append(F.silu(sum(padded[:, 3 - j : 3 - j + T] * conv.taps_DK[:, j] for j in range(4))))
    q, k, v = (z.view(B, T, heads.H, -1) for z in columns)
    q, k = (z / (z.square().sum(-1, keepdim=True) + 1e-6).sqrt() for z in (q, k))
    o = slow(q * heads.K**-0.5, k, v, torch.sigmoid(mixer.beta(x_BTD)))
    o = o / (o.square().mean(-1, keepdim=True) + 1e-5).sqrt() * mixer.norm_V
    return mixer.out(o.flatten(2))


def test_the_layer_is_its_formulae():
    mixer = shaken(build_mixer("delta_net", {"n_heads": 2}))
    x_BTD, context = random_input()
    assert_same(lambda x: run(mixer, x, context), lambda x: slow_layer(mixer, x), [x_BTD])


def test_a_zero_key_stays_zero():
    zero = torch.zeros(3, requires_grad=True)
    unit(zero).sum().backward()
    assert (unit(zero) == 0).all() and zero.grad.isfinite().all()


@torch.no_grad()
def test_starts_as_flash_linear_attention_did():
    """Xavier-uniform with gain 2^-2.5, convolutions as torch's (fla/layers/delta_net.py until d30c0833)."""
    torch.manual_seed(0)
    mixer = DeltaNet(256, DeltaNet.Options(), Place(layer=0, n_layers=6, context_len=64))
    mixer.init_weights()
    for linear in (*mixer.heads.linears(), mixer.beta, mixer.out):
        fans = sum(linear.weight.shape)
        assert float(linear.weight.std()) == pytest.approx(2**-2.5 * (2 / fans) ** 0.5, rel=0.04)
    for conv in mixer.heads.convs():
        assert conv.bias_D is None
        assert float(conv.taps_DK.abs().max()) == pytest.approx(0.5, rel=0.02)
        assert float(conv.taps_DK.std()) == pytest.approx(0.5 / 3**0.5, rel=0.05)
    assert (mixer.norm_V == 1).all()


def test_initialisation_fills_every_parameter():
    mixer = DeltaNet(16, DeltaNet.Options(), Place(layer=0, n_layers=2, context_len=8)).to("meta")
    mixer.to_empty(device="cpu")
    with torch.no_grad():
        for p in mixer.parameters():
            p.fill_(torch.nan)
    mixer.init_weights()
    assert all(p.isfinite().all() for p in mixer.parameters())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_heads": 3}, "3 heads do not divide"),
        ({"n_heads": 0, "d_key": 4, "d_value": 4}, "0 key heads"),
        ({"d_key": 0}, "heads of width 0"),
        ({"conv_len": 0}, "conv_len is 0"),
    ],
)
def test_impossible_options_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        build_mixer("delta_net", options)
