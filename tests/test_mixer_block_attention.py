"""Attention inside blocks against its equation, row by row; what it sees, its state, its refusal."""

import pytest
import torch
from attention_cases import EXACT, assert_same, attention_by_rows
from hypothesis import given, settings
from hypothesis import strategies as st
from mixer_cases import build_mixer, random_input, run, shaken

from recallgap.errors import ConfigError


@given(window=st.integers(1, 20), T=st.integers(1, 60))
@settings(max_examples=40, deadline=None)
def test_equals_its_equation_in_values_and_gradients(window, T):
    mixer = shaken(build_mixer("block_attention", {"n_heads": 4, "n_kv_heads": 2, "window": window}))
    x_BTD, context = random_input(T=T)
    x_BTD.requires_grad_()
    assert_same(
        mixer,
        x_BTD,
        lambda: run(mixer, x_BTD, context),
        lambda: attention_by_rows(mixer.heads, x_BTD, lambda t: range(t - t % window, t + 1)),
    )


def test_a_block_as_long_as_the_context_is_attention():
    whole = shaken(build_mixer("attention", {"n_heads": 2}))
    mixer = build_mixer("block_attention", {"n_heads": 2, "window": 24})
    mixer.load_state_dict(whole.state_dict())
    x_BTD, context = random_input()
    torch.testing.assert_close(run(mixer, x_BTD, context), run(whole, x_BTD, context), atol=EXACT, rtol=EXACT)


def test_a_token_moves_the_rest_of_its_block_and_nothing_else():
    mixer = shaken(build_mixer("block_attention", {"n_heads": 2, "window": 16}))
    x_BTD, context = random_input(B=1, T=70)
    changed_BTD = x_BTD.clone()
    changed_BTD[:, 37] += 1
    difference_BTD = (run(mixer, x_BTD, context) - run(mixer, changed_BTD, context)).detach()
    moved = difference_BTD.abs().amax((0, 2)) > EXACT
    assert moved.nonzero().flatten().tolist() == list(range(37, 48))


@pytest.mark.parametrize("window", [1, 6])
def test_steps_hold_the_keys_of_the_present_block_alone(window):
    mixer = shaken(build_mixer("block_attention", {"n_heads": 2, "window": window}))
    x_BTD, context = random_input(T=20)
    state, columns, held = mixer.start(2), [], []
    for x_BD in x_BTD.unbind(1):
        y_BD, state = mixer.step(x_BD, state, context)
        columns.append(y_BD)
        held.append(state["keys_BGTE"].shape[2])
    torch.testing.assert_close(torch.stack(columns, 1), run(mixer, x_BTD, context), atol=EXACT, rtol=EXACT)
    assert held == [t % window + 1 for t in range(20)]
    assert [mixer.state_size(T) for T in range(1, 21)] == [2 * n * 16 for n in held]


def test_a_block_without_a_key_is_refused():
    with pytest.raises(ConfigError, match="a block of 0 tokens holds no key"):
        build_mixer("block_attention", {"window": 0})
