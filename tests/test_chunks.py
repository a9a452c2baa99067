"""What the chunked recurrences share: precision under autocast, layouts, decays."""

import pytest
import torch
from delta_cases import delta_inputs
from recurrences import normal, uniform, with_gradients

from recallgap.models.chunks import decays, sum_from
from recallgap.models.delta_rule import delta_rule
from recallgap.models.gated_linear import gated_linear_attention
from recallgap.models.ssd import ssd

B, T = 2, 70
RECURRENCES = {
    "ssd": (ssd, [normal(B, T, 1, 2, 3), -uniform(B, T, 1, 2), normal(B, T, 1, 4), normal(B, T, 1, 4)]),
    "gla": (
        gated_linear_attention,
        [normal(B, T, 2, 3), normal(B, T, 2, 3), normal(B, T, 2, 4), -uniform(B, T, 2, 3)],
    ),
    "delta_rule": (delta_rule, delta_inputs(T)),
}
each_recurrence = pytest.mark.parametrize(("function", "inputs"), RECURRENCES.values(), ids=RECURRENCES)


@each_recurrence
def test_autocast_changes_nothing_forward_or_backward(function, inputs):
    inputs = [x.float() for x in inputs]
    plain = with_gradients(function, inputs)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = with_gradients(function, inputs)
    assert all(torch.equal(a, b) for a, b in zip(plain, cast, strict=True))


@each_recurrence
def test_half_precision_inputs_are_summed_in_float32(function, inputs):
    halves = [x.bfloat16() for x in inputs]
    assert function(*halves).dtype == torch.float32
    assert torch.equal(function(*halves), function(*(x.float() for x in halves)))


@each_recurrence
def test_the_layout_in_memory_does_not_matter(function, inputs):
    def laid_out(x):
        return x.transpose(1, -1).contiguous().transpose(1, -1)

    plain = with_gradients(function, inputs)
    other = with_gradients(lambda *z: function(*map(laid_out, z)), inputs)
    for ours, theirs in zip(other, plain, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_decays_are_products_of_what_lies_between():
    g = -100 * uniform(3, 9)
    expected = torch.zeros(3, 9, 9, dtype=torch.float64)
    for t in range(9):
        for s in range(t + 1):
            expected[:, t, s] = g[:, s + 1 : t + 1].sum(-1).exp()
    torch.testing.assert_close(decays(g), expected, rtol=1e-12, atol=0)


def test_a_mild_decay_after_a_strong_one_keeps_its_digits():
    g = torch.tensor([-1e6, -0.1, -0.2])
    assert float(decays(g)[2, 1]) == pytest.approx(float(torch.exp(torch.tensor(-0.2))), rel=1e-6)


def test_sum_from():
    assert sum_from(torch.tensor([[1.0, 2.0, 3.0]]), 1).tolist() == [[6.0, 5.0, 3.0]]
