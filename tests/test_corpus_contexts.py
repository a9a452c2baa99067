"""Contexts tile the stream: every token in exactly one, none longer than the model sees."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recallgap.corpus import ContextPolicy, cut
from recallgap.errors import ConfigError

LENGTHS = st.lists(st.integers(0, 7), max_size=8)


def bounds_of(lengths):
    return np.cumsum([0, *lengths])


def literal_cut(bounds, length):
    """Start a new piece at each border and wherever the piece is full."""
    pieces, last = [], 0
    for t in range(bounds[-1] + 1):
        if t in bounds.tolist() or t - last == length:
            pieces.append(t)
            last = t
    return pieces


@given(lengths=LENGTHS, length=st.integers(1, 5))
def test_cut_is_the_literal_cut(lengths, length):
    assert cut(bounds_of(lengths), length).tolist() == literal_cut(bounds_of(lengths), length)


@given(lengths=LENGTHS, context_len=st.integers(2, 5))
def test_packed_contexts_ignore_documents_and_document_contexts_do_not_cross_them(lengths, context_len):
    bounds = bounds_of(lengths)
    packed = ContextPolicy(policy="packed", context_len=context_len).bounds(bounds)
    assert packed.tolist() == [*range(0, bounds[-1], context_len), bounds[-1]]
    document = ContextPolicy(policy="document", context_len=context_len).bounds(bounds)
    assert set(bounds.tolist()) <= set(document.tolist())
    assert (np.diff(document) <= context_len).all()


@pytest.mark.parametrize(("n", "expected"), [(0, [0]), (1, [0, 1]), (8, [0, 8]), (9, [0, 8, 9])])
def test_a_stream_of_exactly_one_context(n, expected):
    for policy in ("packed", "document"):
        assert ContextPolicy(policy=policy, context_len=8).bounds(np.array([0, n])).tolist() == expected


def test_documents_of_no_one_and_two_tokens():
    bounds = np.array([0, 0, 1, 3, 3])
    assert ContextPolicy(policy="document", context_len=8).bounds(bounds).tolist() == [0, 1, 3]


def test_a_policy_that_cannot_be():
    with pytest.raises(ConfigError, match=r"unknown context policy 'pack'\. Did you mean 'packed'"):
        ContextPolicy(policy="pack")
    with pytest.raises(ConfigError, match="context_len is 1, but a prediction needs at least 2"):
        ContextPolicy(context_len=1)
    assert ContextPolicy(policy="document", context_len=64).to_dict() == {
        "policy": "document",
        "context_len": 64,
    }
