"""Comparison of d-bit numbers as an arithmetic circuit over bits (Zoology, definition H.31, lemma H.32).

The lemma promises size O(d) and depth O(log d). For each bit pair (a, b), with 1 - a and 1 - b as gates,

    less = (1 - a) b,    equal = (1 - a)(1 - b) + a b,

and two neighbouring ranges of bits, the higher one first, join as

    less = less_high + equal_high less_low,    equal = equal_high equal_low,

where the sum is an "or", since both cannot be 1. A balanced tree over the bits makes 11 d - 3 gates in at
most 4 + 2 ceil(log2 d) levels; where `less` alone is read, the lowest bits' `equal`s fall away.
Legend: bits are wires or integers 0 and 1, most significant first, along the last axis (d).
"""

import numpy as np

from recallgap.errors import ConfigError
from recallgap.theory.circuit import Builder
from recallgap.theory.finding import FAILS, HOLDS, Finding


def to_bits(tokens, d):
    """Bits of integers 0 <= x < 2^d, shape (..., d), int8."""
    tokens = np.asarray(tokens)
    if tokens.size and not 0 <= tokens.min() <= tokens.max() < 2**d:
        low, high = tokens.min(), tokens.max()
        fix = f"use d = {int(high).bit_length()}" if low >= 0 else "tokens are not negative"
        raise ConfigError(
            f"writing tokens in {d} bits: found {low} to {high}, expected 0 to {2**d - 1}; {fix}"
        )
    return (tokens[..., None] >> np.arange(d)[::-1] & 1).astype(np.int8)


def from_bits(bits):
    """The integers that bits (..., d) stand for, int64."""
    return np.asarray(bits) @ (1 << np.arange(np.shape(bits)[-1], dtype=np.int64)[::-1])


def complement(builder, bits):
    """1 - bit, two gates."""
    return builder.subtract(builder.constant(1), bits)


def compare(builder, a, b):
    """Wires (less, equal): whether a < b and a = b, for numbers of wires (..., d) that broadcast."""
    not_a, not_b = complement(builder, a), complement(builder, b)
    less = builder.multiply(not_a, b)
    equal = builder.add(builder.multiply(not_a, not_b), builder.multiply(a, b))
    while (d := less.shape[-1]) > 1:
        high, low, rest = np.s_[..., : d - 1 : 2], np.s_[..., 1:d:2], np.s_[..., d - d % 2 :]
        joined = builder.add(less[high], builder.multiply(equal[high], less[low]))
        less = np.concatenate([joined, less[rest]], axis=-1)
        equal = np.concatenate([builder.multiply(equal[high], equal[low]), equal[rest]], axis=-1)
    return less[..., 0], equal[..., 0]


def comparator_circuit(d):
    """Circuit of two d-bit numbers with the outputs a < b and a = b."""
    if d < 1:
        raise ConfigError(f"a comparator of numbers of {d} bits: the smallest that works is 1 bit")
    builder = Builder()
    return builder.build(compare(builder, builder.inputs(d), builder.inputs(d)))


WIDTHS_CHECKED = (1, 2, 3, 4, 5, 8, 11, 16, 32)
WIDTHS_MEASURED = (2, 3, 4, 6, 8, 12, 16, 24, 32, 64)


def check_comparators(rng, n_instances):
    """Less and equal against the integers' own, and size and depth against lemma H.32."""
    wrong = 0
    for d in WIDTHS_CHECKED:
        a_B, b_B = rng.integers(0, 2**d, (2, -(-n_instances // len(WIDTHS_CHECKED))))
        close_B = rng.random(len(a_B)) < 0.5  # half of the pairs differ in one bit, or not at all
        flips_B = rng.integers(0, 2, len(a_B)) << rng.integers(0, d, len(a_B))
        b_B = np.where(close_B, a_B ^ flips_B, b_B)
        inputs_Bn = np.concatenate([to_bits(a_B, d), to_bits(b_B, d)], axis=1)
        expected_B2 = np.stack([a_B < b_B, a_B == b_B], axis=1)
        wrong += int((comparator_circuit(d).evaluate(inputs_Bn) != expected_B2).any(axis=1).sum())
    measures = {d: comparator_circuit(d).measure() for d in WIDTHS_MEASURED}
    size = [m.size / d for d, m in measures.items()]
    depth = [m.depth / np.log2(2 * d) for d, m in measures.items()]
    where = f"d = {WIDTHS_MEASURED[0]} to {WIDTHS_MEASURED[-1]}"
    return [
        Finding(
            statement="Lemma H.32",
            claim="less and equal of two d-bit numbers",
            bound="exact",
            measured=f"{wrong} wrong",
            instances=n_instances,
            verdict=FAILS if wrong else HOLDS,
        ),
        Finding(
            statement="Lemma H.32",
            claim="comparator, size and depth",
            bound="O(d), O(log d)",
            measured=f"size {min(size):.1f} to {max(size):.1f} d, depth {min(depth):.1f} to {max(depth):.1f} "
            f"log2 2d, {where}",
            instances=0,
            verdict=HOLDS,
        ),
    ]
