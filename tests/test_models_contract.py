"""The contract of recallgap/models/mixer.py, for every mixer and state mixer in each of its cases."""

import math

import pytest
import torch
from mixer_cases import (
    CASES,
    CONTEXT_LEN,
    TABLE,
    Dead,
    Leaky,
    build_mixer,
    random_input,
    run,
    shaken,
    variants,
)
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from recallgap.models.convolution import real_fft_flops
from recallgap.models.mixer import MixerContext

EXACT = 1e-10
"""float64, sums of a few hundred terms and FFTs of unit-size numbers."""
LONG = 2048
each_variant = pytest.mark.parametrize(
    ("name", "options"), [pytest.param(n, o, id=f"{n}-{i}") for i, (n, o) in enumerate(variants())]
)


def test_every_mixer_has_a_case():
    assert CASES.keys() == TABLE.keys()


def future_moves_past(mixer, cut=9):
    """Largest change before `cut` of the output when input and ids change from `cut` on; the change after."""
    x_BTD, context = random_input()
    ids_BT = context.ids_BT.clone()
    ids_BT[:, cut:] = (ids_BT[:, cut:] + 1 + torch.arange(CONTEXT_LEN - cut)) % 7
    changed_BTD = torch.cat([x_BTD[:, :cut], x_BTD[:, cut:] + 1.0 + x_BTD[:, cut:].square()], dim=1)
    before = run(mixer, x_BTD, context)
    after = run(mixer, changed_BTD, MixerContext(ids_BT=ids_BT))
    difference_T = (before - after).detach().abs().amax(dim=(0, 2))
    return float(difference_T[:cut].max()), float(difference_T[cut:].max())


@each_variant
@pytest.mark.parametrize("training", [True, False])
def test_no_mixer_sees_the_future(name, options, training):
    mixer = shaken(build_mixer(name, options)).train(training)
    past, future = future_moves_past(mixer)
    assert past < EXACT
    assert future > 1e-3 or name == "identity", "the output ignores its input"


def test_a_leaking_mixer_is_found():
    past, _ = future_moves_past(Leaky())
    assert past > 1e-3


def dead_parameters(mixer, x_BTD, context):
    """Names of parameters that get no gradient, a zero one or one that is not finite."""
    y_BTD = run(mixer, x_BTD, context)
    weights = torch.linspace(0.5, 1.5, y_BTD.numel()).view_as(y_BTD)
    (y_BTD.float().square() * weights).sum().backward()
    return [
        name
        for name, p in mixer.named_parameters()
        if p.grad is None or not p.grad.isfinite().all() or not p.grad.abs().sum() > 0
    ]


@each_variant
def test_gradient_reaches_every_parameter_at_length_2048_in_bf16(name, options):
    if name == "identity":
        pytest.skip("identity has no parameters and ignores its input")
    mixer = shaken(build_mixer(name, options, context_len=LONG)).float()
    x_BTD, context = random_input(B=1, T=LONG)
    x_BTD = x_BTD.float().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert dead_parameters(mixer, x_BTD, context) == []
    assert x_BTD.grad.isfinite().all()
    assert x_BTD.grad.abs().sum() > 0


def test_a_dead_parameter_is_found():
    assert dead_parameters(Dead(), *random_input()) == ["unused"]


@each_variant
def test_gradients_are_those_of_the_function(name, options):
    mixer = shaken(build_mixer(name, options, d_model=8, context_len=5))
    x_BTD, context = random_input(B=2, T=5, d_model=8)
    parameters = [p.requires_grad_() for p in mixer.parameters()]
    x_BTD.requires_grad_()
    assert torch.autograd.gradcheck(
        lambda x, *_: run(mixer, x, context), (x_BTD, *parameters), fast_mode=True
    )


@each_variant
def test_every_length_runs_and_is_a_prefix_of_the_longest(name, options):
    """T from 1 to 17 and 23, of which each must give what the longest gives at its positions."""
    mixer = shaken(build_mixer(name, options)).eval()
    x_BTD, context = random_input()
    whole = run(mixer, x_BTD, context)
    for T in [*range(1, 18), 23]:
        part = run(mixer, x_BTD[:, :T], MixerContext(ids_BT=context.ids_BT[:, :T]))
        torch.testing.assert_close(part, whole[:, :T], atol=EXACT, rtol=EXACT)


@each_variant
def test_order_within_the_batch_does_not_matter(name, options):
    mixer = shaken(build_mixer(name, options)).eval()
    x_BTD, context = random_input(B=3)
    order = [2, 0, 1]
    turned = run(mixer, x_BTD[order], MixerContext(ids_BT=context.ids_BT[order]))
    torch.testing.assert_close(turned, run(mixer, x_BTD, context)[order], atol=EXACT, rtol=EXACT)


@each_variant
def test_step_by_step_equals_the_parallel_form_and_holds_what_state_size_says(name, options):
    mixer = shaken(build_mixer(name, options)).eval()
    if not hasattr(mixer, "step"):
        pytest.skip(f"{name} has no recurrent form")
    x_BTD, context = random_input()
    state, columns = mixer.start(batch_size=2), []
    for t in range(CONTEXT_LEN):
        column, state = mixer.step(x_BTD[:, t], state, context)
        columns.append(column)
    torch.testing.assert_close(torch.stack(columns, 1), run(mixer, x_BTD, context), atol=EXACT, rtol=EXACT)
    held = sum(tensor.numel() for tensor in state.values())
    assert held == 2 * mixer.state_size(CONTEXT_LEN)


def flops_known(mixer, T, x_BTD, context):
    """`flops(T)`; where the data decide how many rows are computed, for the share that they select."""
    if not hasattr(mixer, "select"):
        return mixer.flops(T)
    selected_BT = mixer.select(x_BTD, MixerContext(ids_BT=context.ids_BT)) != 0
    return mixer.flops(T, selected=float(selected_BT.float().mean()))


def fft_flops(input_shape, n, *_, **__):
    batch = 1
    for size in input_shape[:-1]:
        batch *= size
    return round(batch * real_fft_flops(n))


@each_variant
def test_flops_are_those_of_one_forward(name, options):
    T = 512
    mixer = build_mixer(name, options, context_len=T).float().eval()
    x_BTD, context = random_input(B=1, T=T)
    aten = torch.ops.aten
    count = FlopCounterMode(
        display=False,
        custom_mapping={
            aten.addcmul: lambda _, x_shape, *__, **___: 2 * math.prod(x_shape),
            aten.addcmul_: lambda shape, *_, **__: 2 * math.prod(shape),
            aten.linalg_solve_triangular: lambda _, right, *__, **___: math.prod(right) * right[-2],
            aten._fft_r2c: lambda shape, *_, **__: fft_flops(shape, shape[-1]),
            aten._fft_c2r: lambda shape, dims, norm, n, **__: fft_flops(shape, n),
        },
    )
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), count:
        run(mixer, x_BTD.float(), context)
    flops = flops_known(mixer, T, x_BTD.float(), context)
    assert flops * T == pytest.approx(count.get_total_flops(), rel=0.05)
