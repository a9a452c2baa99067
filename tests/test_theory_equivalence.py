"""BaseConv and Hyena in each other's layers, the trainable mixers as both, and gated recurrences."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from mixer_cases import build_mixer, random_input, shaken
from theory_program_oracles import SEEDS, oracle_conv

from recallgap.errors import ConfigError
from recallgap.theory.base_conv import random_layer
from recallgap.theory.equivalence import (
    FLOAT32_TOLERANCE,
    FLOAT64_TOLERANCE,
    HyenaLayer,
    base_conv_as_hyena,
    base_conv_of,
    check_hyena,
    distance,
    hyena_as_base_conv,
    in_float32,
    random_hyena,
    run_hyena,
)
from recallgap.theory.finding import HOLDS
from recallgap.theory.recurrences import (
    check_recurrences,
    retnet,
    retnet_parallel,
    rwkv,
    rwkv_parallel,
)

N_POSITIONS, WIDTHS, TAPS = st.integers(1, 30), st.integers(1, 4), st.integers(1, 4)


def oracle_hyena(hyena, u_ND):
    """The layer's two lines for one sequence."""
    N = len(u_ND)
    short_NX = np.zeros((N, len(hyena.c_X)))
    short_NX[: len(hyena.short_KX)] = hyena.short_KX[:N]
    z_NX = np.array(oracle_conv(short_NX, u_ND @ hyena.W_DX + hyena.b_X, False)) + hyena.c_X
    x0_ND, x1_ND, v_ND = np.split(z_NX, 3, axis=1)
    long_ND = np.array(oracle_conv(hyena.long_ND, x1_ND * v_ND, False))
    return (x0_ND * long_ND) @ hyena.W_out_DD + hyena.b_out_D


@given(SEEDS, N_POSITIONS, WIDTHS, TAPS)
def test_hyena_is_five_base_conv_layers(seed, N, D, K):
    rng = np.random.default_rng(seed)
    hyena, u_BND = random_hyena(rng, N, D, K), rng.standard_normal((2, N, D))
    expected_BND = np.stack([oracle_hyena(hyena, u_ND) for u_ND in u_BND])
    program = hyena_as_base_conv(hyena)
    assert distance(hyena(u_BND), expected_BND) < FLOAT64_TOLERANCE
    assert distance(program(u_BND), expected_BND) < FLOAT64_TOLERANCE
    rounded_BND = hyena_as_base_conv(in_float32(hyena))(u_BND.astype(np.float32))
    assert rounded_BND.dtype == np.float32
    assert distance(rounded_BND, expected_BND) < FLOAT32_TOLERANCE
    assert program.notation == (N, 5, D, N, 3 * D)


@given(SEEDS, N_POSITIONS, WIDTHS)
def test_base_conv_is_two_hyena_layers(seed, N, D):
    """With b1 and b2 that differ from row to row; exact, as the integers are small."""
    rng = np.random.default_rng(seed)
    step, u_BND = random_layer(rng, N, D, cyclic=False), rng.integers(-9, 10, (2, N, D))
    layers = base_conv_as_hyena(step)
    found_BND = run_hyena(layers, u_BND.astype(float))
    np.testing.assert_array_equal(np.rint(found_BND), step(u_BND))
    expected_BND = step(u_BND)
    rounded_BND = run_hyena([in_float32(x) for x in layers], u_BND.astype(np.float32))
    assert rounded_BND.dtype == np.float32
    assert distance(rounded_BND, expected_BND) < FLOAT32_TOLERANCE
    assert [x.long_ND.shape for x in layers] == 2 * [(N, 4 * D)]


@given(SEEDS, st.integers(1, 12), st.integers(1, 3))
def test_there_and_back(seed, N, D):
    """A BaseConv layer as Hyena layers as BaseConv layers: ten of them."""
    rng = np.random.default_rng(seed)
    step, u_BND = random_layer(rng, N, D, cyclic=False), rng.integers(-9, 10, (1, N, D))
    x_BND = np.concatenate([u_BND, np.zeros((1, N, 3 * D))], axis=2)
    for hyena in base_conv_as_hyena(step):
        x_BND = hyena_as_base_conv(hyena)(x_BND)
    np.testing.assert_array_equal(np.rint(x_BND[..., :D]), step(u_BND))


def test_a_cyclic_layer_is_no_hyena_layer():
    with pytest.raises(ConfigError, match="give a causal layer"):
        base_conv_as_hyena(random_layer(np.random.default_rng(0), 4, 1, cyclic=True))


@pytest.mark.parametrize("kernel_len", [1, 3, 50, None])
def test_the_trainable_base_conv_is_definition_4_1(kernel_len):
    mixer = shaken(build_mixer("base_conv", {"kernel_len": kernel_len})).eval()
    x_BTD, context = random_input()
    with torch.no_grad():
        expected_BTD = mixer(x_BTD, context).numpy()
    found_BTD = base_conv_of(mixer, x_BTD.shape[1])(x_BTD.numpy())
    assert distance(found_BTD, expected_BTD) < FLOAT64_TOLERANCE


@pytest.mark.parametrize("short_len", [1, 3])
def test_the_trainable_hyena_is_the_layer_defined_here(short_len):
    mixer = shaken(build_mixer("hyena", {"short_len": short_len})).eval()
    x_BTD, context = random_input()
    N = x_BTD.shape[1]
    with torch.no_grad():
        expected_BTD = mixer(x_BTD, context).numpy()
        weights = (
            mixer.inputs.weight.T, mixer.inputs.bias, mixer.short_DK.T, mixer.short_bias_D,
            mixer._filters(N)[0].T, mixer.out.weight.T, mixer.out.bias,
        )  # fmt: skip
    hyena = HyenaLayer(*(w.detach().numpy() for w in weights))
    for layers in (hyena, hyena_as_base_conv(hyena)):
        assert distance(layers(x_BTD.numpy()), expected_BTD) < FLOAT64_TOLERANCE


@given(SEEDS, st.integers(1, 12), WIDTHS, WIDTHS, st.integers(-2, 2))
def test_retnet_is_a_gated_recurrence(seed, T, E, F, gamma):
    """Exactly, in integers; the state after T positions is all that later outputs see."""
    rng = np.random.default_rng(seed)
    A_TE, C_TE, V_TF = (rng.integers(-9, 10, (T, width)) for width in (E, E, F))
    O_TF, Z_EF = retnet(A_TE, V_TF, C_TE, gamma)
    expected = [
        sum(gamma ** (t - s) * (C_TE[t] @ A_TE[s]) * V_TF[s] for s in range(t + 1)).tolist() for t in range(T)
    ]
    assert O_TF.tolist() == retnet_parallel(A_TE, V_TF, C_TE, gamma).tolist() == expected
    np.testing.assert_array_equal(C_TE[-1] @ Z_EF, O_TF[-1])


@given(SEEDS, st.integers(1, 12), WIDTHS)
def test_rwkv_is_a_gated_recurrence(seed, T, D):
    rng = np.random.default_rng(seed)
    w_D, u_D, K_TD, V_TD = rng.random(D), *(rng.standard_normal(s) for s in (D, (T, D), (T, D)))
    for t in range(T):
        weights = [np.exp(K_TD[s] - (t - 1 - s) * w_D) for s in range(t)] + [np.exp(K_TD[t] + u_D)]
        mean_D = sum(x * v for x, v in zip(weights, V_TD, strict=False)) / sum(weights)
        for form in (rwkv, rwkv_parallel):
            np.testing.assert_allclose(form(w_D, u_D, K_TD, V_TD)[t], mean_D, rtol=0, atol=1e-12)


def test_checks_hold():
    rng = np.random.default_rng(0)
    findings = check_hyena(rng, 20) + check_recurrences(rng, 20)
    assert [f.verdict for f in findings] == 5 * [HOLDS]
