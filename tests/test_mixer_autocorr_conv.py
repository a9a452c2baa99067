"""Convolution with autocorrelation filters against its sums written out; the paper's form and its warning."""

import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from mixer_cases import build_mixer, random_input, run, shaken
from test_models_contract import EXACT, fft_flops, future_moves_past
from torch.utils.flop_counter import FlopCounterMode

from recallgap.errors import ConfigError
from recallgap.models.mixers import autocorr_conv
from recallgap.models.mixers.autocorr_conv import autocorrelation, prefix_autocorrelation

NAME = "autocorr_conv"


def build(n_lags=3, causal=True, **place):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return shaken(build_mixer(NAME, {"n_lags": n_lags, "causal": causal}, **place))


def literal_correlation(q_TD, t):
    """z_t[s] for s in 0 .. t, summed as it is written."""
    return [sum((q_TD[i] @ q_TD[i - s]).item() for i in range(s, t + 1)) for s in range(t + 1)]


def literal(mixer, x_TD, n_lags, causal):
    """y of one sequence, position by position and lag by lag."""
    q_TD, k_TD, v_TD = (x_TD @ w.weight.T for w in (mixer.query, mixer.key, mixer.value))
    T, D = x_TD.shape
    y_TD = torch.zeros_like(x_TD)
    for t in range(T):
        z = literal_correlation(q_TD, t if causal else T - 1)
        best = sorted(range(1, len(z)), key=lambda s: -z[s])[:n_lags]
        lags = [s for s in best if s <= t]
        if lags:
            scores = torch.stack([q_TD[t] @ k_TD[t - s] for s in lags]) / D**0.5
            y_TD[t] = scores.softmax(0) @ torch.stack([v_TD[t - s + 1] for s in lags])
    return y_TD


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("T", "n_lags"), [(1, 1), (2, 3), (3, 1), (11, 4), (17, 16), (17, 40)])
def test_it_equals_its_sums_in_values_and_gradients(T, n_lags, causal):
    mixer = build(n_lags, causal)
    x_BTD, context = random_input(B=3, T=T)
    x_BTD.requires_grad_()
    expected_BTD = torch.stack([literal(mixer, x_TD, n_lags, causal) for x_TD in x_BTD])
    found_BTD = run(mixer, x_BTD, context)
    torch.testing.assert_close(found_BTD, expected_BTD, atol=EXACT, rtol=EXACT)
    if T > 2:
        towards = torch.linspace(-1, 1, found_BTD.numel()).view_as(found_BTD).double()
        inputs = [x_BTD, *mixer.parameters()]
        gradients = [torch.autograd.grad((y * towards).sum(), inputs) for y in (found_BTD, expected_BTD)]
        for found, expected in zip(*gradients, strict=True):
            torch.testing.assert_close(found, expected, atol=EXACT, rtol=EXACT)


@given(st.integers(1, 12), st.integers(1, 3), st.randoms(use_true_random=False))
def test_correlations_of_integers_are_the_sums(T, D, random):
    q_TD = torch.tensor([[random.randint(-4, 4) for _ in range(D)] for _ in range(T)]).double()
    prefix_TT = prefix_autocorrelation(q_TD[None])[0]
    for t in range(T):
        assert prefix_TT[t, : t + 1].tolist() == literal_correlation(q_TD, t)
        assert (prefix_TT[t, t + 1 :] == -torch.inf).all()
    whole_T = autocorrelation(q_TD[None])[0, 0]
    assert whole_T.round().tolist() == literal_correlation(q_TD, T - 1)
    assert float((whole_T - whole_T.round()).abs().max()) < 1e-9


def test_a_repeated_stretch_is_copied_after_one_lag():
    """Orthogonal tokens, the second half repeats the first: the lag is found where the first repeat stands,
    and every repeat brings the token after the earlier occurrence."""
    mixer = build_mixer(NAME, {"n_lags": 1}, d_model=16, context_len=12)
    with torch.no_grad():
        for linear in (mixer.query, mixer.key, mixer.value):
            linear.weight.copy_(torch.eye(16))
    tokens = [0, 1, 2, 3, 4, 5] * 2
    x_BTD = torch.eye(16, dtype=torch.float64)[tokens][None]
    assert mixer(x_BTD, None)[0, 6:].argmax(1).tolist() == [1, 2, 3, 4, 5, 0]


def test_the_papers_form_sees_the_future_and_warns():
    past, future = future_moves_past(build(causal=False))
    assert min(past, future) > 1e-3
    autocorr_conv.warn_not_causal.cache_clear()
    with pytest.warns(UserWarning, match="not those of a causal model and must not be compared"):
        build_mixer(NAME, {"causal": False})
    autocorr_conv.warn_not_causal.cache_clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        build_mixer(NAME, {})


def test_the_papers_form_has_no_step():
    mixer = build(causal=False)
    x_BTD, context = random_input()
    with pytest.raises(ConfigError, match="needs the whole sequence, so it has no step"):
        mixer.step(x_BTD[:, 0], mixer.start(2), context)


def test_flops_of_the_papers_form_are_those_of_one_forward():
    mixer = build(causal=False, context_len=512).float()
    x_BTD, context = random_input(B=1, T=512)
    aten = torch.ops.aten
    transforms = {
        aten._fft_r2c: lambda shape, *_, **__: fft_flops(shape, shape[-1]),
        aten._fft_c2r: lambda shape, dims, norm, n, **__: fft_flops(shape, n),
    }
    with torch.no_grad(), FlopCounterMode(display=False, custom_mapping=transforms) as count:
        run(mixer, x_BTD.float(), context)
    assert mixer.flops(512) * 512 == pytest.approx(count.get_total_flops(), rel=0.01)


def test_no_lags_are_refused():
    with pytest.raises(ConfigError, match="n_lags is 0, but at least 1"):
        build_mixer(NAME, {"n_lags": 0})
