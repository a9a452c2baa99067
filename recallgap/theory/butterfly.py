"""Butterfly matrices, kaleidoscopes, and both as BaseConv programs (Zoology, arXiv 2312.04927, section H.4).

`routing` has the factors, and permutations and copies made of them. Here, as further products of factors:

    linear_level  y[g] = a[g] x[left[g]] + b[g] x[right[g]]: a level of a linear arithmetic circuit, three BB*
                  of rows enough for both operands (theorem H.19: a circuit of depth D in (BB*)^O(D))
    fourier       the discrete Fourier transform: bit reversal in one BB*, and a B

As BaseConv (section H.4): a factor is two layers on three columns. One adds the columns and writes the sum
back three times, masked: what stays, what goes down, what goes up; the next shifts the columns. Going up
needs the cyclic form. A last layer adds: 2 log N + 1 layers for a butterfly matrix.
Legend: N = 2^m rows, G gates of a level.
"""

from itertools import pairwise

import numpy as np

from recallgap.errors import ConfigError
from recallgap.theory.base_conv import Filter, Program, layer
from recallgap.theory.finding import FAILS, HOLDS, Finding
from recallgap.theory.routing import (
    NOWHERE,
    Factor,
    apply,
    log2_exactly,
    merged,
    permutation,
    route,
    rows_for,
)

COLUMNS = 3
"""What stays, what goes down, what goes up."""
ALL = np.ones((COLUMNS, COLUMNS), np.int8)
FLOAT_TOLERANCE = 1e-12
"""complex128, log N additions of numbers of unit size; relative to the largest result."""


def kaleidoscope(factors):
    """The product as pairs (B*, B) in order of application, each with a factor of every bit: (BB*)^len."""
    N = len(factors[0].own_N)
    bits = range(log2_exactly(N))
    pairs, falling = [], False
    for previous, factor in pairwise([None, *factors]):
        was_falling, falling = falling, previous is None or factor.bit < previous.bit
        if falling and not was_falling:
            pairs.append(([_identity(bit, N) for bit in reversed(bits)], [_identity(bit, N) for bit in bits]))
        half = pairs[-1][0 if falling else 1]
        place = -1 - factor.bit if falling else factor.bit
        half[place] = factor
    return pairs


def _identity(bit, N):
    return Factor(bit, np.ones(N, np.int8), np.zeros(N, np.int8))


def linear_level(left_G, right_G, a_G, b_G, N):
    """Factors for y[g] = a[g] x[left[g]] + b[g] x[right[g]] in the first rows, 0 in all others."""
    G, half = len(left_G), N // 2
    if half < G:
        raise ConfigError(
            f"a level of {G} linear gates in {N} rows: both operands of each need {rows_for(2 * G)}"
        )
    source_N, own_N, other_N = np.full(N, NOWHERE), np.zeros(N, a_G.dtype), np.zeros(N, b_G.dtype)
    source_N[:G], source_N[half : half + G] = left_G, right_G
    own_N[:G], other_N[:G] = a_G, b_G
    return merged([*route(source_N), Factor(log2_exactly(N) - 1, own_N, other_N)])


def fourier(N):
    """Factors of the discrete Fourier transform (Cooley and Tukey 1965)."""
    m = log2_exactly(N)
    rows_N = np.arange(N)
    reversed_N = sum(((rows_N >> bit) & 1) << (m - 1 - bit) for bit in range(m))
    factors = permutation(reversed_N)
    for bit in range(m):
        low_N = (rows_N >> bit) & 1 == 0
        turn_N = np.exp(-1j * np.pi * (rows_N % (1 << bit)) / (1 << bit))
        factors.append(Factor(bit, np.where(low_N, 1, -turn_N), np.where(low_N, turn_N, 1)))
    return merged(factors)


def factor_layers(factor):
    """The two layers of a factor, of the sum of the columns before it."""
    N, s = len(factor.own_N), 1 << factor.bit
    leaves_N = factor.other_N[factor.partner_N]  # the weight at the row where it will be read
    down_N = np.arange(N) & s == 0
    weights_N3 = np.stack(
        [factor.own_N, np.where(down_N, leaves_N, 0), np.where(down_N, 0, leaves_N)], axis=1
    )
    masked = layer(N, COLUMNS, W=ALL, b2=weights_N3)
    return masked, layer(N, COLUMNS, b1=1, h=Filter.taps((0, 0, 1), (s, 1, 1), (N - s, 2, 1)))


def program(factors):
    """The product as a BaseConv program on one column."""
    N = len(factors[0].own_N)
    first = np.array([[1, 0, 0]])
    layers = [x for factor in factors for x in factor_layers(factor)]
    return Program((N, 1), (*layers, layer(N, COLUMNS, W=ALL, b2=first)), (N, 1))


def check_butterfly(rng, n_instances):
    """Products of factors, and the programs they become, against the matrices and circuits they stand for."""
    butterflies, moves, circuits = [0, 0.0], 0, [0, 0]
    for i in range(n_instances):
        m = i % 6 + 1
        N = 1 << m
        x_BN = rng.integers(-9, 10, (2, N))
        numbers = rng.integers(-3, 4, (m, 2, N))
        factors = [Factor(bit, *numbers[bit]) for bit in range(m)]
        product_NN = np.eye(N, dtype=np.int64)
        for bit, (own_N, other_N) in enumerate(numbers):
            factor_NN = np.diag(own_N)
            factor_NN[np.arange(N), np.arange(N) ^ (1 << bit)] = other_N
            product_NN = factor_NN @ product_NN
        as_program = program(factors)
        assert as_program.n_layers == 2 * m + 1
        expected_BN = x_BN @ product_NN.T
        same = np.array_equal(apply(factors, x_BN), expected_BN)
        butterflies[0] += not (same and np.array_equal(as_program(x_BN[..., None])[..., 0], expected_BN))
        waves_BN = np.fft.fft(x_BN)
        error = abs(apply(fourier(N), x_BN) - waves_BN).max() / max(1, abs(waves_BN).max())
        butterflies[1] = max(butterflies[1], float(error))

        target_N, source_N = rng.permutation(N), rng.integers(NOWHERE, N, N) // rng.integers(1, 4)
        moved_BN, factors = np.empty_like(x_BN), permutation(target_N)
        moved_BN[:, target_N] = x_BN
        same = np.array_equal(apply(factors, x_BN), moved_BN) and len(kaleidoscope(factors)) == 1
        routed_BN = np.where(source_N == NOWHERE, 0, x_BN[:, source_N])
        moves += not (same and np.array_equal(apply(route(source_N), x_BN), routed_BN))

        depth, G, y_BN, factors = int(rng.integers(1, 5)), N // 2, x_BN, []
        for _ in range(depth):
            (left_G, right_G), (a_G, b_G) = rng.integers(0, G, (2, G)), rng.integers(-3, 4, (2, G))
            factors += linear_level(left_G, right_G, a_G, b_G, N)
            y_BN = a_G * y_BN[:, left_G] + b_G * y_BN[:, right_G]
        as_program = program(merged(factors))
        circuits[0] += not np.array_equal(as_program(x_BN[..., None])[:, :G, 0], y_BN)
        circuits[1] = max(circuits[1], len(kaleidoscope(merged(factors))) / depth)
    return [
        _finding(
            "Section H.4",
            "butterfly matrix as BaseConv layers",
            "O(log n) layers",
            f"2 log2 n + 1 layers, 3 columns; {butterflies[0]} differ",
            n_instances,
            butterflies[0] == 0,
        ),
        _finding(
            "Definition H.14",
            "Fourier transform as butterfly and BB*, against numpy's",
            "equal",
            f"within {butterflies[1]:.0e}",
            n_instances,
            butterflies[1] < FLOAT_TOLERANCE,
        ),
        _finding(
            "Section H.4",
            "permutations as one BB*; copying in three",
            "BB*",
            f"{moves} differ",
            n_instances,
            moves == 0,
        ),
        _finding(
            "Theorem H.19",
            "layered linear circuits as kaleidoscope products, then as BaseConv",
            "(BB*)^O(depth)",
            f"{circuits[1]:.0f} BB* a level; {circuits[0]} differ",
            n_instances,
            circuits[0] == 0,
        ),
    ]


def _finding(statement, claim, bound, measured, instances, good):
    return Finding(
        statement=statement,
        claim=claim,
        bound=bound,
        measured=measured,
        instances=instances,
        verdict=HOLDS if good else FAILS,
    )
