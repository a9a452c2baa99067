"""Causal convolution equals its definition in every form, length and layout, in value and gradient."""

import pytest
import torch
from convolution_oracle import assert_same, gradients, naive_conv
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from recallgap.models import convolution
from recallgap.models.convolution import (
    LONGEST_DIRECT,
    causal_conv,
    channel_major,
    conv_flops,
    conv_step,
    direct_conv,
    fft_conv,
    fft_length,
    from_channels,
    real_fft_flops,
    to_channels,
    with_skip,
)

EXACT = 1e-10
"""float64, sums of at most a few hundred products of unit-size numbers, and FFTs of them."""
SINGLE = 2e-6
"""float32 against float64, relative to the largest output: some roundings, growing with log n in an FFT."""
BF16 = 2.0**-8
"""One rounding to bfloat16."""
each_form = pytest.mark.parametrize("conv", [causal_conv, direct_conv, fft_conv])

LAYOUTS = {
    "time-major": lambda B, D, T: torch.randn(B, T, D, dtype=torch.float64).transpose(1, 2),
    "part of a wider time-major": lambda B, D, T: torch.randn(B, T, 3 * D).double().mT[:, D : 2 * D],
    "channel-major": lambda B, D, T: torch.randn(D, B, T, dtype=torch.float64).transpose(0, 1),
    "sequence by sequence": lambda B, D, T: torch.randn(B, D, T, dtype=torch.float64),
}


def random_case(layout="time-major", B=2, D=3, T=20, K=7, seed=0):
    torch.manual_seed(seed)
    x_BDT = LAYOUTS[layout](B, D, T).requires_grad_()
    kernel_DK = torch.randn(D, K, dtype=torch.float64).requires_grad_()
    bias_D = torch.randn(D, dtype=torch.float64).requires_grad_()
    return x_BDT, kernel_DK, bias_D


def expected_conv(x_BDT, kernel_DK, bias_D=None):
    y_BDT = naive_conv(x_BDT.transpose(1, 2), kernel_DK).transpose(1, 2)
    return y_BDT if bias_D is None else y_BDT + bias_D.unsqueeze(1)


@each_form
@settings(max_examples=40, deadline=None)
@given(
    layout=st.sampled_from(sorted(LAYOUTS)),
    B=st.integers(1, 3),
    D=st.integers(1, 4),
    T=st.integers(1, 24),
    K=st.integers(1, 30),
    with_bias=st.booleans(),
    seed=st.integers(0, 99),
)
def test_equals_the_definition_in_value_and_gradient(conv, layout, B, D, T, K, with_bias, seed):
    x_BDT, kernel_DK, bias_D = random_case(layout, B, D, T, K, seed)
    inputs = (x_BDT, kernel_DK, bias_D) if with_bias else (x_BDT, kernel_DK)
    if conv is not causal_conv:
        inputs = (x_BDT, kernel_DK[:, :T].detach().requires_grad_(), *inputs[2:])
    assert_same(conv(*inputs), expected_conv(*inputs), inputs, EXACT)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("K", [1, 2, 5, 12])
@pytest.mark.parametrize("size", [1, 7, 40, 200, 300])
def test_tiles_and_chunks_meet_without_a_seam(monkeypatch, layout, K, size):
    monkeypatch.setattr(convolution, "TILE", size)
    monkeypatch.setattr(convolution, "TRANSFORM", size)
    inputs = random_case(layout, B=5, K=K)
    for conv in (direct_conv, fft_conv):
        assert_same(conv(*inputs), expected_conv(*inputs), inputs, EXACT)


@pytest.mark.parametrize("K", [LONGEST_DIRECT, LONGEST_DIRECT + 1, 300])
def test_long_kernels_over_many_tiles(K):
    inputs = random_case(B=1, D=2, T=300, K=K)
    assert_same(causal_conv(*inputs), expected_conv(*inputs), inputs, EXACT)
    assert_same(direct_conv(*inputs), fft_conv(*inputs), inputs, EXACT)


@each_form
def test_gradients_are_those_of_the_function(conv):
    for T, K in ((1, 1), (9, 4), (9, 9)):
        inputs = random_case(B=2, D=2, T=T, K=K)
        assert torch.autograd.gradcheck(conv, inputs)


@each_form
def test_the_end_never_wraps_around_to_the_beginning(conv):
    for T in (2, 3, 8, 64, 100, 128, 257):
        x_BDT = torch.zeros(1, 1, T, dtype=torch.float64)
        x_BDT[..., -1] = 1e6
        y_BDT = conv(x_BDT, torch.ones(1, T, dtype=torch.float64))
        assert y_BDT[..., :-1].abs().max() < 1e6 * EXACT
        assert y_BDT[..., -1].item() == pytest.approx(1e6)


def test_taps_longer_than_the_sequence_get_no_gradient():
    x_BDT, kernel_DK, _ = random_case(T=5, K=9)
    (dkernel_DK,) = gradients(causal_conv(x_BDT, kernel_DK), [kernel_DK])
    assert dkernel_DK[:, :5].abs().min() > 0
    assert dkernel_DK[:, 5:].abs().max() == 0


@pytest.mark.parametrize("K", [3, 64, 2048])
@pytest.mark.parametrize("layout", ["time-major", "channel-major"])
def test_float32_is_accurate_at_length_2048(K, layout):
    inputs = random_case(layout, B=2, D=4, T=2048, K=K)
    single = tuple(z.detach().float().requires_grad_() for z in inputs)
    exact, got = causal_conv(*inputs), causal_conv(*single)
    assert got.dtype == torch.float32
    for g, e in zip((got, *gradients(got, single)), (exact, *gradients(exact, inputs)), strict=True):
        assert (g - e).abs().max() < SINGLE * e.abs().max()


@pytest.mark.parametrize("K", [3, 64])
@pytest.mark.parametrize("layout", ["time-major", "channel-major"])
def test_bfloat16_only_rounds_what_comes_in_and_goes_out(K, layout):
    x_BDT, kernel_DK, bias_D = (z.detach().float() for z in random_case(layout, T=200, K=K))
    half = (x_BDT.bfloat16().requires_grad_(), kernel_DK.requires_grad_(), bias_D.requires_grad_())
    wide = (x_BDT.bfloat16().float().requires_grad_(), kernel_DK, bias_D)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y_BDT = causal_conv(*half)
        dx_BDT, dkernel_DK, dbias_D = torch.autograd.grad(y_BDT.float().square().sum(), half)
    expected_BDT = causal_conv(*wide)
    assert (y_BDT.dtype, dx_BDT.dtype, dkernel_DK.dtype) == (torch.bfloat16, torch.bfloat16, torch.float32)
    torch.testing.assert_close(y_BDT.float(), expected_BDT, rtol=BF16, atol=0)
    rounded_BDT = 2 * y_BDT.detach().float()
    expected = torch.autograd.grad((expected_BDT * rounded_BDT.bfloat16().float()).sum(), wide)
    scale = expected[1].abs().max()
    assert (dkernel_DK - expected[1]).abs().max() < 1e-5 * scale
    torch.testing.assert_close(dx_BDT.float(), expected[0], rtol=BF16, atol=1e-3)
    torch.testing.assert_close(dbias_D, expected[2], rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("K", [3, 40])
def test_the_result_lies_in_memory_as_the_input_does(K):
    for layout, innermost in (("time-major", 1), ("channel-major", 2), ("sequence by sequence", 2)):
        x_BDT, kernel_DK, _ = random_case(layout, T=50, K=K)
        y_BDT = causal_conv(x_BDT, kernel_DK)
        assert y_BDT.stride(innermost) == 1
        assert gradients(y_BDT, [x_BDT])[0].stride(innermost) == 1


@each_form
def test_a_gradient_that_is_one_number_everywhere(conv):
    inputs = random_case()
    got = torch.autograd.grad(conv(*inputs).sum(), inputs)
    expected = torch.autograd.grad(expected_conv(*inputs).sum(), inputs)
    for g, e in zip(got, expected, strict=True):
        torch.testing.assert_close(g, e, atol=EXACT, rtol=EXACT)


@pytest.mark.parametrize("bias", [True, False])
def test_linear_layers_into_and_out_of_channel_major(bias):
    torch.manual_seed(0)
    linear = nn.Linear(4, 6, bias=bias).double()
    x_BTD = torch.randn(2, 5, 4, dtype=torch.float64, requires_grad=True)
    inputs = [x_BTD, *linear.parameters()]
    y_BDT = to_channels(linear, x_BTD)
    assert y_BDT.stride() == (5, 10, 1)
    assert_same(y_BDT, linear(x_BTD).transpose(1, 2), inputs, EXACT)
    x_BDT = channel_major(x_BTD.transpose(1, 2))
    assert_same(from_channels(linear, x_BDT), linear(x_BTD), inputs, EXACT)
    assert from_channels(linear, x_BDT).is_contiguous()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert to_channels(linear.float(), x_BTD.float()).dtype == torch.bfloat16


@pytest.mark.parametrize("layout", LAYOUTS)
def test_channel_major_changes_no_number_and_gives_the_gradient_back_in_its_layout(layout):
    x_BDT, _, _ = random_case(layout)
    y_BDT = channel_major(x_BDT)
    assert y_BDT.stride(2) == 1
    assert torch.equal(y_BDT, x_BDT)
    dy_BDT = torch.randn(2, 3, 20, dtype=torch.float64)
    (dx_BDT,) = torch.autograd.grad(y_BDT, x_BDT, dy_BDT)
    assert torch.equal(dx_BDT, dy_BDT)
    assert dx_BDT.stride(1 if "time-major" in layout else 2) == 1


@pytest.mark.parametrize("K", [1, 4, 30])
def test_step_by_step_and_never_holding_more_than_it_needs(K):
    x_BDT, kernel_DK, _ = random_case(K=K)
    past_BDK, columns = x_BDT.new_empty(2, 3, 0), []
    for t in range(20):
        assert past_BDK.shape[2] == min(t, K - 1)
        y_BD, past_BDK = conv_step(x_BDT[..., t], past_BDK, kernel_DK)
        columns.append(y_BD)
    torch.testing.assert_close(
        torch.stack(columns, -1), expected_conv(x_BDT, kernel_DK), atol=EXACT, rtol=EXACT
    )


def test_a_skip_is_part_of_the_first_tap():
    x_BDT, kernel_DK, skip_D = random_case()
    expected_BDT = expected_conv(x_BDT, kernel_DK) + skip_D.unsqueeze(1) * x_BDT
    y_BDT = causal_conv(x_BDT, with_skip(kernel_DK, skip_D))
    assert_same(y_BDT, expected_BDT, (x_BDT, kernel_DK, skip_D), EXACT)


@given(st.integers(1, 5000))
def test_fft_lengths_are_the_smallest_even_products_of_2_3_and_5(n):
    smooth = sorted(2**a * 3**b * 5**c for a in range(1, 14) for b in range(9) for c in range(6))
    assert fft_length(n) == next(length for length in smooth if length >= n)


def test_flops_are_those_of_the_form_that_runs():
    assert conv_flops(100, 3) == 6
    assert conv_flops(2, 3) == 4
    assert conv_flops(100, 64) == 3 * real_fft_flops(180) / 100
    assert conv_flops(100, 64, rows=4) == 9 * real_fft_flops(180) / 100


def test_the_usual_convolution_of_torch_agrees():
    x_BDT, kernel_DK, bias_D = random_case()
    conv_BDT = F.conv1d(x_BDT, kernel_DK.flip(1).unsqueeze(1), bias_D, padding=6, groups=3)[..., :20]
    torch.testing.assert_close(causal_conv(x_BDT, kernel_DK, bias_D), conv_BDT, atol=EXACT, rtol=EXACT)
