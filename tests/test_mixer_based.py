"""Based: the quadratic form and the state are one function; features; initial weights."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mixer_cases import build_mixer, random_input, shaken

from recallgap.errors import ConfigError
from recallgap.models.chunks import run
from recallgap.models.mixer import options_of
from recallgap.models.mixers.based import CHUNK, Based, _Rule, features, features_backward, n_features

EXACT = 1e-10
"""float64, sums of a few hundred terms of unit size."""


def quadratic(q_BTHE, k_BTHE, v_BTHF):
    """sum p(z) v / sum p(z) over the past, p(z) = 1 + z + z^2 / 2, with all T x T products."""
    z_BHTT = torch.einsum("bthe,bshe->bhts", q_BTHE, k_BTHE)
    p_BHTT = (1 + z_BHTT + z_BHTT.square() / 2).tril()
    return torch.einsum("bhts,bshf->bthf", p_BHTT / p_BHTT.sum(-1, keepdim=True), v_BTHF)


def recurrent(q_BTHE, k_BTHE, v_BTHF):
    """The authors' state: features [1, x, vec(x x^T) / sqrt(2)], numerator and denominator apart."""

    def taylor(x):
        pairs = (x.unsqueeze(-1) * x.unsqueeze(-2)).flatten(-2) / math.sqrt(2)
        return torch.cat([torch.ones_like(x[..., :1]), x, pairs], dim=-1)

    phi_q, phi_k = taylor(q_BTHE), taylor(k_BTHE)
    numerator_BTHPF = (phi_k.unsqueeze(-1) * v_BTHF.unsqueeze(-2)).cumsum(1)
    denominator_BTHP = phi_k.cumsum(1)
    sums_BTHF = (phi_q.unsqueeze(-1) * numerator_BTHPF).sum(-2)
    return sums_BTHF / (phi_q * denominator_BTHP).sum(-1, keepdim=True)


def chunked(q_BTHE, k_BTHE, v_BTHF):
    return run(_Rule, CHUNK, q_BTHE, k_BTHE, v_BTHF)


def values_and_gradients(function, inputs):
    o_BTHF = function(*inputs)
    weights = torch.linspace(-1, 1, o_BTHF.numel(), dtype=o_BTHF.dtype).view_as(o_BTHF)
    return o_BTHF, torch.autograd.grad((weights * o_BTHF).sum(), inputs)


@settings(deadline=None, max_examples=12)
@given(T=st.integers(1, 2 * CHUNK + 5), H=st.integers(1, 3), E=st.integers(1, 5), width=st.integers(1, 4))
def test_quadratic_recurrent_and_chunked_forms_are_equal_in_values_and_gradients(T, H, E, width):
    generator = torch.Generator().manual_seed(T)
    shapes = [(2, T, H, E), (2, T, H, E), (2, T, H, width)]
    inputs = [torch.randn(s, generator=generator, dtype=torch.float64).requires_grad_() for s in shapes]
    expected, expected_grads = values_and_gradients(quadratic, inputs)
    for form in (recurrent, chunked):
        o_BTHF, grads = values_and_gradients(form, inputs)
        torch.testing.assert_close(o_BTHF, expected, atol=EXACT, rtol=EXACT)
        torch.testing.assert_close(grads, expected_grads, atol=EXACT, rtol=EXACT)


@pytest.mark.parametrize("E", [1, 2, 16])
def test_features_multiply_to_the_taylor_series_and_have_its_gradient(E):
    x, y = torch.randn(2, 1, 2, E, 5, dtype=torch.float64)
    x.requires_grad_()
    z_BHC = (x * y).sum(2)
    assert features(x).shape[2] == n_features(E) == {1: 3, 2: 6, 16: 153}[E]
    torch.testing.assert_close((features(x) * features(y)).sum(2), 1 + z_BHC + z_BHC.square() / 2)
    weights = torch.randn(1, 2, n_features(E), 5, dtype=torch.float64)
    (expected,) = torch.autograd.grad((features(x) * weights).sum(), x)
    torch.testing.assert_close(features_backward(x.detach(), weights.clone()), expected)


def test_the_layer_is_its_equations():
    mixer = shaken(build_mixer("based", {"n_heads": 2, "d_feature": 4}))
    x_BTD, context = random_input(T=150)
    q, k, v = (f(x_BTD).unflatten(-1, (2, -1)) for f in (mixer.query, mixer.key, mixer.value))
    expected_BTD = mixer.out(quadratic(q / math.sqrt(4), k, v).flatten(2))
    torch.testing.assert_close(mixer(x_BTD, context), expected_BTD, atol=EXACT, rtol=EXACT)


def test_the_smallest_weights_keep_their_precision_over_long_contexts():
    """At z = -1 p is least, 1/2: float32 keeps its digits there over 2048 tokens."""
    q_BTHE = torch.ones(1, 2048, 1, 1)
    v_BTHF = torch.randn(1, 2048, 1, 3)
    o_BTHF = chunked(q_BTHE, -q_BTHE, v_BTHF)
    mean_BTHF = v_BTHF.double().cumsum(1) / torch.arange(1, 2049).view(1, -1, 1, 1)
    torch.testing.assert_close(o_BTHF.double(), mean_BTHF, atol=1e-5, rtol=1e-5)


def test_initial_weights_are_those_of_the_authors_models():
    """based/models/gpt.py, _init_weights: N(0, 0.02), and N(0, 0.02 / sqrt(2 layers)) for out_proj."""
    mixer = build_mixer("based", {}, d_model=256, n_layers=3)
    for name, p in mixer.named_parameters():
        expected = 0.02 / math.sqrt(6) if name == "out.weight" else 0.02
        assert float(p.detach().std()) == pytest.approx(expected, rel=0.02), name
        assert abs(float(p.detach().mean())) < 2e-4, name
    assert {name: tuple(p.shape) for name, p in mixer.named_parameters()}["query.weight"] == (256, 256)


def test_options_that_cannot_be_built_are_refused():
    with pytest.raises(ConfigError, match="5 heads do not divide a width of 16"):
        build_mixer("based", {"n_heads": 5})
    with pytest.raises(ConfigError, match="d_feature is 0"):
        build_mixer("based", {"d_feature": 0})
    with pytest.raises(ConfigError, match="option of based 'feature_dim'"):
        options_of("based", Based, {"feature_dim": 8})
