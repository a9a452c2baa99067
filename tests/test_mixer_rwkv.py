"""RWKV-4 against its definition as a weighted mean, transformers, and the initial values of RWKV-LM."""

import math

import pytest
import torch
from mixer_cases import build_mixer, random_input, shaken
from transformers.models.rwkv.configuration_rwkv import RwkvConfig
from transformers.models.rwkv.modeling_rwkv import RwkvSelfAttention

from recallgap.errors import ConfigError
from recallgap.models.mixer import options_of
from recallgap.models.mixers.rwkv import RWKV, wkv

EXACT = 1e-10
"""float64, sums of at most 100 terms of unit size."""
SINGLE = 2e-5
"""float32, two ways to sum up to 64 terms."""
LAYER_AND_DEPTH = [(0, 1), (0, 3), (1, 3), (2, 3)]


def oracle_wkv(w_D, u_D, k_TBD, v_TBD):
    """The definition, term by term."""
    out = []
    for t in range(len(k_TBD)):
        numerator_BD = (k_TBD[t] + u_D).exp() * v_TBD[t]
        denominator_BD = (k_TBD[t] + u_D).exp()
        for i in range(t):
            weight_BD = (k_TBD[i] - (t - 1 - i) * w_D).exp()
            numerator_BD = numerator_BD + weight_BD * v_TBD[i]
            denominator_BD = denominator_BD + weight_BD
        out.append(numerator_BD / denominator_BD)
    return torch.stack(out)


def softmax_wkv(w_D, u_D, k_TBD, v_TBD):
    """The definition as attention over the past with scores k_i - (t - 1 - i) w, and k_t + u at i = t."""
    T = len(k_TBD)
    age_TT = (torch.arange(T).unsqueeze(1) - 1 - torch.arange(T)).to(k_TBD)
    score_TTBD = k_TBD.unsqueeze(0) - age_TT[:, :, None, None] * w_D
    now_TT = torch.eye(T, dtype=torch.bool)[:, :, None, None]
    score_TTBD = torch.where(now_TT, (k_TBD + u_D).unsqueeze(0), score_TTBD)
    score_TTBD = score_TTBD.masked_fill(age_TT[:, :, None, None] < -1, -math.inf)
    return (score_TTBD.softmax(1) * v_TBD.unsqueeze(0)).sum(1)


def random_arguments(T, k_std=2.0, dtype=torch.float64, B=2, D=5):
    generator = torch.Generator().manual_seed(T)
    draw = [
        torch.randn(*shape, generator=generator, dtype=torch.float64)
        for shape in [(D,)] * 2 + [(T, B, D)] * 2
    ]
    w_D = torch.tensor([1e-3, 0.1, 1.0, 4.0, 20.0], dtype=torch.float64)
    return [x.to(dtype).requires_grad_() for x in (w_D, draw[1], k_std * draw[2], draw[3])]


def values_and_gradients(function, arguments):
    out = function(*arguments)
    weights = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
    return out, torch.autograd.grad((weights * out).sum(), arguments, materialize_grads=True)


@pytest.mark.parametrize("T", [1, 2, 3, 16, 33])
def test_the_scan_is_the_weighted_mean_in_values_and_gradients(T):
    arguments = random_arguments(T)
    ours, ours_grads = values_and_gradients(wkv, arguments)
    theirs, their_grads = values_and_gradients(oracle_wkv, arguments)
    torch.testing.assert_close(ours, theirs, atol=EXACT, rtol=EXACT)
    torch.testing.assert_close(ours_grads, their_grads, atol=EXACT, rtol=EXACT)


@pytest.mark.parametrize("k_std", [1.0, 40.0, 1000.0])
def test_large_keys_neither_overflow_nor_lose_the_early_positions(k_std):
    arguments = random_arguments(60, k_std)
    ours, ours_grads = values_and_gradients(wkv, arguments)
    theirs, their_grads = values_and_gradients(softmax_wkv, arguments)
    torch.testing.assert_close(ours, theirs, atol=EXACT, rtol=EXACT)
    torch.testing.assert_close(ours_grads, their_grads, atol=EXACT * k_std, rtol=EXACT)


@pytest.mark.parametrize(("k_std", "tolerance"), [(1.0, 1e-4), (40.0, 3e-3)])
def test_float32_keeps_its_precision_over_2048_positions(k_std, tolerance):
    """Keys of 100 leave steps of 8e-6 to a decay of 1e-3 a position, in each form that holds logarithms."""
    double = random_arguments(2048, k_std, D=5)
    single = [x.detach().float().requires_grad_() for x in double]
    exact, exact_grads = values_and_gradients(wkv, [x.detach().double().requires_grad_() for x in single])
    ours, ours_grads = values_and_gradients(wkv, single)
    torch.testing.assert_close(ours.double(), exact, atol=tolerance, rtol=tolerance)
    for grad, exact_grad in zip(ours_grads, exact_grads, strict=True):
        assert (grad.double() - exact_grad).norm() < tolerance * exact_grad.norm()


def as_transformers(mixer):
    """The same layer of transformers, with the mixer's weights."""
    D = mixer.decay.numel()
    config = RwkvConfig(hidden_size=D, num_hidden_layers=3, context_length=64)
    theirs = RwkvSelfAttention(config, layer_id=1)
    pairs = {
        "time_decay": mixer.decay,
        "time_first": mixer.bonus,
        "time_mix_key": mixer.mix_key.view(1, 1, D),
        "time_mix_value": mixer.mix_value.view(1, 1, D),
        "time_mix_receptance": mixer.mix_receptance.view(1, 1, D),
        "key.weight": mixer.key.weight,
        "value.weight": mixer.value.weight,
        "receptance.weight": mixer.receptance.weight,
        "output.weight": mixer.out.weight,
    }
    theirs.load_state_dict({name: p.detach().clone() for name, p in pairs.items()})
    return theirs


def test_it_is_the_layer_of_transformers_given_its_weights():
    mixer = shaken(build_mixer("rwkv", {})).float()
    theirs = as_transformers(mixer)
    x_BTD, context = random_input(T=64)
    ours_x_BTD, their_x_BTD = x_BTD.float().requires_grad_(), x_BTD.float().requires_grad_()
    ours_BTD, theirs_BTD = mixer(ours_x_BTD, context), theirs(their_x_BTD)[0]
    torch.testing.assert_close(ours_BTD, theirs_BTD, atol=SINGLE, rtol=SINGLE)
    ours_BTD.square().sum().backward()
    theirs_BTD.square().sum().backward()
    torch.testing.assert_close(ours_x_BTD.grad, their_x_BTD.grad, atol=10 * SINGLE, rtol=10 * SINGLE)
    for name, ours in [
        ("time_decay", mixer.decay),
        ("time_first", mixer.bonus),
        ("key.weight", mixer.key.weight),
    ]:
        grad = theirs.get_parameter(name).grad
        torch.testing.assert_close(ours.grad, grad, atol=10 * SINGLE, rtol=10 * SINGLE)


@pytest.mark.parametrize(("layer", "n_layers"), LAYER_AND_DEPTH)
def test_initial_values_are_those_of_rwkv_lm_v4(layer, n_layers):
    D = 16
    mixer = build_mixer("rwkv", {}, layer=layer, n_layers=n_layers)
    depth = layer / (n_layers - 1) if n_layers > 1 else 0.0
    left = 1 - layer / n_layers
    expected = {
        "decay": [-5 + 8 * (d / (D - 1)) ** (0.7 + 1.3 * depth) for d in range(D)],
        "bonus": [math.log(0.3) + (0.0, 0.5, -0.5)[d % 3] for d in range(D)],
        "mix_key": [(d / D) ** left for d in range(D)],
        "mix_value": [(d / D) ** left + 0.3 * depth for d in range(D)],
        "mix_receptance": [(d / D) ** (left / 2) for d in range(D)],
    }
    for name, values in expected.items():
        assert mixer.get_parameter(name).tolist() == pytest.approx(values), name
    value_DD = mixer.value.weight
    torch.testing.assert_close(value_DD @ value_DD.T, torch.eye(D, dtype=torch.float64))
    for linear in (mixer.key, mixer.receptance, mixer.out):
        assert not linear.weight.any()


def test_vectors_are_not_decayed_by_the_optimiser():
    mixer = build_mixer("rwkv", {})
    rules = mixer.param_rules()
    for name, p in mixer.named_parameters():
        assert any(pattern in name for pattern in rules) == (p.ndim == 1), name


def test_an_option_it_does_not_have_is_refused():
    with pytest.raises(ConfigError, match="option of rwkv 'n_heads'"):
        options_of("rwkv", RWKV, {"n_heads": 2})
