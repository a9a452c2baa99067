"""RWKV-7 against its recurrence, written token by token; the values of the first layer; initial values."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mixer_cases import build_mixer, random_input, run, shaken
from test_models_contract import dead_parameters, future_moves_past
from torch import nn
from torch.nn import functional as F

from recallgap.errors import ConfigError
from recallgap.models.dplr import CHUNK, dplr
from recallgap.models.mixer import MixerContext, options_of
from recallgap.models.mixers.rwkv7 import MIXES, RWKV7, SHARED, rank

EXACT = 1e-10
"""float64, sums of a few hundred terms of unit size."""
STRONGEST_DECAY = -math.exp(-0.5)
LAYER_AND_DEPTH = [(0, 1), (0, 3), (1, 3), (2, 3)]


def oracle_dplr(r, log_w, k, v, a, c):
    """S <- S (diag(w) - c (a c)^T) + v k^T, o = S r, with S value by key as in the paper."""
    S_BHVK, out = 0.0, []
    for t in range(r.shape[1]):
        r_t, w_t, k_t, v_t, a_t, c_t = (x[:, t].unsqueeze(-1) for x in (r, log_w.exp(), k, v, a, c))
        eye_EE = torch.eye(r.shape[-1], dtype=r.dtype)
        S_BHVK = S_BHVK * torch.ones_like(eye_EE) @ (w_t * eye_EE - c_t @ (a_t * c_t).mT) + v_t @ k_t.mT
        out.append((S_BHVK @ r_t).squeeze(-1))
    return torch.stack(out, dim=1)


def tokens(T, H=2, E=4, seed=0, log_w=None, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    r, w, k, v, a, c = torch.randn(6, 2, T, H, E, generator=generator, dtype=torch.float64)
    w = STRONGEST_DECAY * torch.sigmoid(3 * w) if log_w is None else torch.full_like(w, log_w)
    parts = (r, w, k, v, torch.sigmoid(a), F.normalize(c, dim=-1))
    return [x.to(dtype).requires_grad_() for x in parts]


def values_and_gradients(function, inputs):
    o = function(*inputs)
    weights = torch.linspace(-1, 1, o.numel(), dtype=o.dtype).view_as(o)
    return o, torch.autograd.grad((weights * o).sum(), inputs, materialize_grads=True)


@settings(deadline=None, max_examples=15)
@given(T=st.integers(1, 3 * CHUNK + 1), H=st.integers(1, 3), E=st.integers(1, 6))
def test_chunks_are_the_recurrence_in_values_and_gradients(T, H, E):
    inputs = tokens(T, H, E, seed=T)
    expected, expected_grads = values_and_gradients(oracle_dplr, inputs)
    o, grads = values_and_gradients(dplr, inputs)
    torch.testing.assert_close(o, expected, atol=EXACT, rtol=EXACT)
    torch.testing.assert_close(grads, expected_grads, atol=EXACT, rtol=EXACT)


@pytest.mark.parametrize("log_w", [STRONGEST_DECAY, -0.01, 0.0])
@pytest.mark.parametrize("repeat", [False, True])
def test_float32_is_precise_at_the_strongest_decay_and_where_one_token_repeats(log_w, repeat):
    """A repeated token erases one direction again and again: powers of the erasures would overflow."""
    T = 256
    double = tokens(T, E=16, log_w=log_w)
    if repeat:
        double = [x[:, :1].expand(-1, T, -1, -1).clone() for x in double]
        double[4] = torch.ones_like(double[4])
    double = [x.detach().float().double().requires_grad_() for x in double]
    single = [x.detach().float().requires_grad_() for x in double]
    exact, exact_grads = values_and_gradients(oracle_dplr, double)
    o, grads = values_and_gradients(dplr, single)
    assert (o - exact).norm() < 1e-5 * exact.norm()
    for grad, exact_grad in zip(grads, exact_grads, strict=True):
        assert (grad - exact_grad).norm() < 1e-4 * exact_grad.norm() + 1e-6


def oracle_layer(mixer, x_BTD, first_BTD):
    """The equations of the file's head, one token at a time, from the mixer's weights."""
    H, E, outs, S_BHVK = mixer.n_heads, mixer.d_head, [], 0.0
    before_BD = torch.zeros_like(x_BTD[:, 0])

    def low(part, x_BD, f):
        y_BD = f(x_BD @ part.down) @ part.up
        return y_BD if part.base is None else y_BD + part.base

    for t in range(x_BTD.shape[1]):
        x_BD = x_BTD[:, t]
        x = {name: x_BD + m_D * (before_BD - x_BD) for name, m_D in zip(MIXES, mixer.mix_6D, strict=True)}
        r, k, v = x["receptance"] @ mixer.receptance.weight.T, x["key"] @ mixer.key.weight.T, None
        v = x["value"] @ mixer.value.weight.T
        if first_BTD is not None:
            v = v + (first_BTD[:, t] - v) * torch.sigmoid(low(mixer.residual, x["value"], lambda z: z))
        w = torch.exp(STRONGEST_DECAY * torch.sigmoid(low(mixer.decay, x["decay"], torch.tanh)))
        a = torch.sigmoid(low(mixer.rate, x["rate"], lambda z: z))
        g = low(mixer.gate, x["gate"], torch.sigmoid)
        c = (k * mixer.erased_D).view(-1, H, E)
        c = c / c.norm(dim=-1, keepdim=True)
        k = k * (1 + (a - 1) * mixer.boost_D)
        r, k, v, w, a = (z.view(-1, H, E) for z in (r, k, v, w, a))
        S_BHVK = S_BHVK + torch.zeros(x_BD.shape[0], H, E, E, dtype=x_BD.dtype)
        erased_BHVK = (S_BHVK @ c.unsqueeze(-1)) * (a * c).unsqueeze(-2)
        S_BHVK = S_BHVK * w.unsqueeze(-2) - erased_BHVK + v.unsqueeze(-1) * k.unsqueeze(-2)
        o = (S_BHVK @ r.unsqueeze(-1)).squeeze(-1)
        o = (o - o.mean(-1, keepdim=True)) / (o.var(-1, unbiased=False, keepdim=True) + 1e-5 * E).sqrt()
        o = o.flatten(1) * mixer.norm.weight + mixer.norm.bias
        o = o + ((r * k * mixer.bonus_HE).sum(-1, keepdim=True) * v).flatten(1)
        outs.append((o * g) @ mixer.out.weight.T)
        before_BD = x_BD
    return torch.stack(outs, dim=1)


@pytest.mark.parametrize("layer", [0, 1])
def test_the_layer_is_its_equations(layer):
    mixer = shaken(build_mixer("rwkv7", {"d_head": 8}, layer=layer))
    x_BTD, context = random_input(T=40)
    first_BTD = None
    if layer > 0:
        first_BTD = context.shared[SHARED] = x_BTD.cos()
    ours_BTD = mixer(x_BTD, context)
    torch.testing.assert_close(ours_BTD, oracle_layer(mixer, x_BTD, first_BTD), atol=EXACT, rtol=EXACT)
    if layer == 0:
        torch.testing.assert_close(context.shared[SHARED], values_of(mixer, x_BTD), atol=EXACT, rtol=EXACT)


def values_of(mixer, x_BTD):
    previous_BTD = F.pad(x_BTD, (0, 0, 1, -1))
    mix_D = mixer.mix_6D[MIXES.index("value")]
    return (x_BTD + mix_D * (previous_BTD - x_BTD)) @ mixer.value.weight.T


class Stack(nn.Module):
    """Three layers with residuals, as in a model: the later two take the values of the first."""

    def __init__(self):
        super().__init__()
        layers = (build_mixer("rwkv7", {"d_head": 8}, layer=layer, seed=layer) for layer in range(3))
        self.layers = nn.ModuleList(shaken(mixer, seed=10 + n) for n, mixer in enumerate(layers))

    def forward(self, x_BTD, context):
        for mixer in self.layers:
            x_BTD = x_BTD + mixer(x_BTD, context)
        return x_BTD


def test_layers_that_share_values_do_not_see_the_future():
    past, future = future_moves_past(Stack())
    assert past < EXACT
    assert future > 1e-3


def test_the_gradient_reaches_every_parameter_of_layers_that_share_values():
    stack, (x_BTD, context) = Stack().float(), random_input()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert dead_parameters(stack, x_BTD.float(), context) == []
    assert [mixer.residual is None for mixer in stack.layers] == [True, False, False]


def test_the_first_layers_values_get_gradient_from_later_layers():
    stack, (x_BTD, context) = Stack(), random_input()
    y_BTD = stack.layers[0](x_BTD, context).detach()
    stack.layers[1](y_BTD, context).sum().backward()
    assert stack.layers[0].value.weight.grad.abs().sum() > 0


def test_step_by_step_a_stack_shares_the_values_of_the_same_token():
    stack, (x_BTD, context) = Stack(), random_input()
    states = [mixer.start(batch_size=2) for mixer in stack.layers]
    columns = []
    for t in range(x_BTD.shape[1]):
        h_BD = x_BTD[:, t]
        for n, mixer in enumerate(stack.layers):
            y_BD, states[n] = mixer.step(h_BD, states[n], context)
            h_BD = h_BD + y_BD
        columns.append(h_BD)
    torch.testing.assert_close(torch.stack(columns, 1), run(stack, x_BTD, context), atol=EXACT, rtol=EXACT)


def test_a_later_layer_without_a_first_one_says_what_to_do():
    mixer = build_mixer("rwkv7", {"d_head": 8}, layer=2)
    x_BTD, context = random_input()
    with pytest.raises(ConfigError, match=r"layer 2 .* set value_residual=False in the first one"):
        mixer(x_BTD, MixerContext(ids_BT=context.ids_BT))


@pytest.mark.parametrize(("layer", "n_layers"), LAYER_AND_DEPTH)
def test_initial_values_are_those_of_rwkv_lm(layer, n_layers):
    """RWKV-v7/train_temp/src/model.py: RWKV_Tmix_x070 and generate_init_weight, read channel by channel."""
    D, N = 16, 8
    mixer = build_mixer("rwkv7", {"d_head": N}, layer=layer, n_layers=n_layers)
    depth, left = (layer / (n_layers - 1) if n_layers > 1 else 0.0), 1 - layer / n_layers
    linear = [n / (D - 1) - 0.5 for n in range(D)]
    zigzag = [(n % N - (N - 1) / 2) / ((N - 1) / 2) for n in range(D)]
    zigzag = [z * abs(z) for z in zigzag]
    www = [-6 + 6 * (n / (D - 1)) ** (1 + depth**0.3) for n in range(D)]
    expected = {
        "decay.base": [www[n] + 0.5 + zigzag[n] * 2.5 for n in range(D)],
        "rate.base": [-0.19 + zigzag[n] * 0.3 + linear[n] * 0.4 for n in range(D)],
        "erased_D": [0.71 - 0.1 * linear[n] for n in range(D)],
        "boost_D": [1.02] * D,
        "norm.weight": [((1 + layer) / n_layers) ** 0.7] * D,
        "norm.bias": [0.0] * D,
    }
    if layer > 0:
        expected["residual.base"] = [0.73 - 0.4 * linear[n] for n in range(D)]
    for name, values in expected.items():
        assert mixer.get_parameter(name).tolist() == pytest.approx(values), name
    powers = {"receptance": 0.2, "decay": 0.9, "key": 0.7, "value": 0.7, "rate": 0.9, "gate": 0.2}
    for name, mix_D in zip(MIXES, mixer.mix_6D, strict=True):
        assert mix_D.tolist() == pytest.approx([1 - (n / D) ** (powers[name] * left) for n in range(D)]), name
    assert (mixer.bonus_HE == -0.04).all()
    eye_DD = torch.eye(D, dtype=torch.float64)
    for linear_layer, gain in ((mixer.receptance, 1), (mixer.key, 0.1), (mixer.value, 1), (mixer.out, 0)):
        gram_DD = linear_layer.weight @ linear_layer.weight.T
        torch.testing.assert_close(gram_DD, gain**2 * eye_DD)
    for part in (mixer.decay, mixer.rate, mixer.gate, *([mixer.residual] if layer else [])):
        assert not part.down.any()
        wide_gain = math.sqrt(max(1, part.up.shape[0] / D))
        torch.testing.assert_close(part.up.T @ part.up, (0.1 * wide_gain) ** 2 * eye_DD)


def test_ranks_are_what_the_source_suggests():
    """max(32, int(round(factor sqrt(C) / 32) * 32)): 2.5 for decay and rate, 1.7 for values, 5 for gates."""
    ranks = {D: [rank(factor, D) for factor in (2.5, 1.7, 5)] for D in (64, 256, 768, 2048)}
    assert ranks == {64: [32, 32, 32], 256: [32, 32, 64], 768: [64, 32, 128], 2048: [128, 64, 224]}


def test_only_the_four_square_matrices_are_decayed_and_the_decay_learns_twice_as_fast():
    mixer = build_mixer("rwkv7", {"d_head": 8}, layer=1)
    rules = mixer.param_rules()
    for name, _ in mixer.named_parameters():
        matching = [rule for pattern, rule in rules.items() if pattern in name]
        square = name in {f"{part}.weight" for part in ("receptance", "key", "value", "out")}
        assert len(matching) == (0 if square else 1), name
        assert all(rule.lr_scale == (2.0 if name == "decay.base" else 1.0) for rule in matching), name


def test_options_that_cannot_be_built_are_refused():
    with pytest.raises(ConfigError, match="heads of width 5 do not divide a width of 16"):
        build_mixer("rwkv7", {"d_head": 5})
    with pytest.raises(ConfigError, match="d_head is 1"):
        build_mixer("rwkv7", {"d_head": 1})
    with pytest.raises(ConfigError, match="option of rwkv7 'head_dim'"):
        options_of("rwkv7", RWKV7, {"head_dim": 8})
