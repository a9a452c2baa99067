"""Sliding attention against its equation, row by row and with a masked square; its blocks, state and cost."""

import pytest
import torch
from attention_cases import EXACT, assert_same, attention_by_rows
from hypothesis import given, settings
from hypothesis import strategies as st
from mixer_cases import build_mixer, random_input, run, shaken
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from recallgap.errors import ConfigError
from recallgap.models.mixers import sliding_attention


def masked_square(mixer, x_BTD):
    """The same function by attention over the full square."""
    T = x_BTD.shape[1]
    distance_TT = torch.arange(T).unsqueeze(1) - torch.arange(T)
    mask_TT = (distance_TT >= 0) & (distance_TT < mixer.window)
    heads = mixer.heads
    qkv = heads.queries(x_BTD), heads.keys(x_BTD), heads.values(x_BTD)
    return heads.join(heads.attend(*qkv, attn_mask=mask_TT))


@pytest.mark.parametrize(("window", "T"), [(1, 5), (3, 8), (8, 8), (4, 37)])
def test_equals_its_equation_in_values_and_gradients(window, T):
    mixer = shaken(build_mixer("sliding_attention", {"n_heads": 2, "n_kv_heads": 1, "window": window}))
    x_BTD, context = random_input(T=T)
    x_BTD.requires_grad_()
    assert_same(
        mixer,
        x_BTD,
        lambda: run(mixer, x_BTD, context),
        lambda: attention_by_rows(mixer.heads, x_BTD, lambda t: range(max(0, t - window + 1), t + 1)),
    )


@given(window=st.integers(1, 20), T=st.integers(1, 60), smallest=st.integers(1, 9), span=st.integers(0, 9))
@settings(max_examples=60, deadline=None)
def test_any_block_length_equals_the_masked_square(window, T, smallest, span):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sliding_attention, "SMALLEST_BLOCK", smallest)
        patch.setattr(sliding_attention, "LARGEST_BLOCK", smallest + span)
        mixer = shaken(build_mixer("sliding_attention", {"n_heads": 4, "n_kv_heads": 2, "window": window}))
    assert mixer.block <= smallest + span
    x_BTD, context = random_input(T=T)
    x_BTD.requires_grad_()
    assert_same(mixer, x_BTD, lambda: run(mixer, x_BTD, context), lambda: masked_square(mixer, x_BTD))


@pytest.mark.parametrize("window", [32, 33, 256, 257, 300])
def test_the_shipped_block_lengths_equal_the_masked_square(window):
    mixer = shaken(build_mixer("sliding_attention", {"n_heads": 2, "window": window}))
    x_BTD, context = random_input(B=1, T=601)
    found = run(mixer, x_BTD, context)
    torch.testing.assert_close(found, masked_square(mixer, x_BTD), atol=EXACT, rtol=EXACT)


def test_a_window_as_long_as_the_context_is_attention():
    whole = shaken(build_mixer("attention", {"n_heads": 2}))
    mixer = build_mixer("sliding_attention", {"n_heads": 2, "window": 24})
    mixer.load_state_dict(whole.state_dict())
    x_BTD, context = random_input()
    torch.testing.assert_close(run(mixer, x_BTD, context), run(whole, x_BTD, context), atol=EXACT, rtol=EXACT)


def test_a_token_moves_its_window_and_nothing_else():
    mixer = shaken(build_mixer("sliding_attention", {"n_heads": 2, "window": 40}))
    x_BTD, context = random_input(B=1, T=200)
    changed_BTD = x_BTD.clone()
    changed_BTD[:, 77] += 1
    difference_BTD = (run(mixer, x_BTD, context) - run(mixer, changed_BTD, context)).detach()
    moved = difference_BTD.abs().amax((0, 2)) > EXACT
    assert moved.nonzero().flatten().tolist() == list(range(77, 77 + 40))


@pytest.mark.parametrize("window", [1, 6])
def test_steps_far_beyond_the_window_hold_its_keys_alone(window):
    mixer = shaken(build_mixer("sliding_attention", {"n_heads": 2, "window": window}))
    x_BTD, context = random_input(T=60)
    state, columns = mixer.start(2), []
    for x_BD in x_BTD.unbind(1):
        y_BD, state = mixer.step(x_BD, state, context)
        columns.append(y_BD)
    torch.testing.assert_close(torch.stack(columns, 1), run(mixer, x_BTD, context), atol=EXACT, rtol=EXACT)
    assert state["keys_BGTE"].shape[2] == window - 1
    assert mixer.state_size(10**6) == 2 * (window - 1) * 16


def test_operations_a_token_do_not_grow_with_the_context():
    mixer = build_mixer("sliding_attention", {"n_heads": 2, "window": 64}).float()
    counts = []
    for T in (1024, 4096):
        x_BTD, context = random_input(B=1, T=T)
        with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as count:
            run(mixer, x_BTD.float(), context)
        counts.append(count.get_total_flops() / T)
    assert counts[0] == counts[1] == mixer.flops(1024) == mixer.flops(10**6 * 64)


def test_a_window_without_a_key_is_refused():
    with pytest.raises(ConfigError, match="a window of 0 tokens holds no key"):
        build_mixer("sliding_attention", {"window": 0})
