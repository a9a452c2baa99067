"""Gated linear attention: its recurrence, gates of any strength, its start."""

import pytest
import torch
from mixer_cases import build_mixer, random_input, run, shaken
from recurrences import LENGTHS, assert_same, assert_same_in_float32, normal, uniform
from torch.nn import functional as F

from recallgap.errors import ConfigError
from recallgap.models import gated_linear
from recallgap.models.gated_linear import gated_linear_attention
from recallgap.models.mixer import Place
from recallgap.models.mixers.gla import GLA

FLOAT32 = 2e-5
"""float32, sums of a few hundred unit-size terms."""


def slow_gla(q_BTHK, k_BTHK, v_BTHV, g_BTHK):
    """The recurrence, read literally."""
    B, T, H, K = k_BTHK.shape
    S_BHKV, outputs = v_BTHV.new_zeros(B, H, K, v_BTHV.shape[-1]), []
    for t in range(T):
        written = torch.einsum("bhk,bhv->bhkv", k_BTHK[:, t], v_BTHV[:, t])
        S_BHKV = g_BTHK[:, t].exp().unsqueeze(-1) * S_BHKV + written
        outputs.append(torch.einsum("bhkv,bhk->bhv", S_BHKV, q_BTHK[:, t]))
    return torch.stack(outputs, 1)


def gla_inputs(T, *, B=2, H=3, K=4, V=5):
    q, k = normal(B, T, H, K), normal(B, T, H, K, seed=1)
    return q, k, normal(B, T, H, V, seed=2), F.logsigmoid(normal(B, T, H, K, seed=3)) / 4


@pytest.mark.parametrize("T", LENGTHS)
def test_chunks_equal_the_recurrence(T):
    assert_same(gated_linear_attention, slow_gla, gla_inputs(T))


@pytest.mark.parametrize(("chunk", "base"), [(8, 8), (16, 4), (32, 1), (256, 16)])
def test_the_lengths_of_chunks_and_blocks_do_not_matter(monkeypatch, chunk, base):
    monkeypatch.setattr(gated_linear, "CHUNK", chunk)
    monkeypatch.setattr(gated_linear, "BASE", base)
    assert_same(gated_linear_attention, slow_gla, gla_inputs(75))


@pytest.mark.parametrize("strength", [1.0, 20.0, 100.0])
@pytest.mark.parametrize("every", [1, 5, 64])
def test_strong_gates_stay_finite_and_exact(strength, every):
    """Gates close now and then, or always; products of exp(b) and exp(-b) would overflow."""
    q, k, v, g = gla_inputs(150)
    closed_T = torch.arange(150) % every == 0
    g = torch.where(closed_T[:, None, None], -strength * uniform(*g.shape), g / 10)
    assert_same_in_float32(gated_linear_attention, slow_gla, (q, k, v, g), tolerance=FLOAT32)


def test_open_gates_are_plain_linear_attention():
    q, k, v, g = gla_inputs(100)
    scores = torch.einsum("bthk,bshk->bhts", q, k).tril()
    torch.testing.assert_close(
        gated_linear_attention(q, k, v, 0 * g), torch.einsum("bhts,bshv->bthv", scores, v)
    )


def slow_layer(mixer, x_BTD):
    """The layer of fla/layers/gla.py, from its formulae."""
    B, T, _ = x_BTD.shape
    q, k, v, r = (linear(x_BTD) for linear in (mixer.query, mixer.key, mixer.value, mixer.gate))
    gate = torch.sigmoid(mixer.decay_out(mixer.decay_in(x_BTD))) ** (1 / 16)
    q, k, v, g = (z.view(B, T, mixer.H, -1) for z in (q * mixer.K**-0.5, k, v, gate.log()))
    o = slow_gla(q, k, v, g)
    o = o / (o.square().mean(-1, keepdim=True) + 1e-5).sqrt() * mixer.norm_V
    return mixer.out(o.flatten(2) * r * torch.sigmoid(r))


def test_the_layer_is_its_formulae():
    mixer = shaken(build_mixer("gla", {"n_heads": 2}))
    x_BTD, context = random_input()
    assert_same(lambda x: run(mixer, x, context), lambda x: slow_layer(mixer, x), [x_BTD])


@torch.no_grad()
def test_starts_as_flash_linear_attention_did():
    """Xavier-uniform with gain 2^-2.5 (fla/layers/gla.py until d30c0833; berlino/gated_linear_attention)."""
    torch.manual_seed(0)
    mixer = GLA(256, GLA.Options(), Place(layer=0, n_layers=6, context_len=64))
    mixer.init_weights()
    for linear, fans in (
        (mixer.query, 256 + 128),
        (mixer.key, 256 + 128),
        (mixer.value, 512),
        (mixer.gate, 512),
        (mixer.out, 512),
        (mixer.decay_in, 256 + 16),
        (mixer.decay_out, 16 + 128),
    ):
        assert linear.weight.shape[0] + linear.weight.shape[1] == fans
        assert float(linear.weight.std()) == pytest.approx(2**-2.5 * (2 / fans) ** 0.5, rel=0.03)
    assert (mixer.decay_out.bias == 0).all() and (mixer.norm_V == 1).all()
    g_BTHK = mixer._project(torch.randn(2, 64, 256))[3]
    assert float(g_BTHK.exp().mean()) == pytest.approx(0.5 ** (1 / 16), abs=0.003)


def test_initialisation_fills_every_parameter():
    mixer = GLA(16, GLA.Options(), Place(layer=0, n_layers=2, context_len=8)).to("meta")
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
        ({"n_heads": 16}, "d_key None: 32 heads do not divide"),
        ({"gate_rank": 0}, "at least 1"),
        ({"d_value": 0}, "at least 1"),
        ({"gate_root": 0.0}, "gate_root is 0.0"),
    ],
)
def test_impossible_options_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        build_mixer("gla", options)
