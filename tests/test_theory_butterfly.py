"""Butterfly factors move and mix rows as the matrices that they are; so do the programs made of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from theory_program_oracles import SEEDS, oracle_factor, oracle_product

from recallgap.errors import ConfigError
from recallgap.theory.butterfly import check_butterfly, fourier, kaleidoscope, linear_level, program
from recallgap.theory.finding import HOLDS
from recallgap.theory.routing import (
    NOWHERE,
    Factor,
    apply,
    log2_exactly,
    merged,
    permutation,
    route,
    route_length,
    rows_for,
    transposed,
)

BITS = st.integers(1, 5)


def random_factors(rng, bits, N):
    return [Factor(bit, *rng.integers(-3, 4, (2, N))) for bit in bits]


def run(program, x_BN):
    return program(x_BN[..., None])[..., 0]


@given(SEEDS, BITS, st.integers(1, 6))
def test_products_of_factors_are_products_of_their_matrices(seed, m, n_factors):
    """In any order of bits; merged, transposed, and as a program of two layers a factor and one more."""
    rng, N = np.random.default_rng(seed), 1 << m
    factors = random_factors(rng, rng.integers(0, m, n_factors).tolist(), N)
    x_BN = rng.integers(-9, 10, (3, N)).astype(object)
    product = oracle_product(factors)
    for same in (factors, merged(factors)):
        np.testing.assert_array_equal(apply(same, x_BN), x_BN @ product.T)
    np.testing.assert_array_equal(apply(transposed(factors), x_BN), x_BN @ product)
    np.testing.assert_array_equal(run(program(factors), x_BN), x_BN @ product.T)
    assert program(factors).n_layers == 2 * n_factors + 1


@given(SEEDS, BITS, st.integers(1, 9))
def test_kaleidoscope_keeps_the_product(seed, m, n_factors):
    """Each pair is a whole B* (bits falling) and a whole B (rising)."""
    rng, N = np.random.default_rng(seed), 1 << m
    factors = merged(random_factors(rng, rng.integers(0, m, n_factors).tolist(), N))
    pairs = kaleidoscope(factors)
    for falling, rising in pairs:
        assert [f.bit for f in falling] == list(reversed(range(m)))
        assert [f.bit for f in rising] == list(range(m))
    flat = [f for pair in pairs for half in pair for f in half]
    np.testing.assert_array_equal(oracle_product(flat), oracle_product(factors))


@given(st.integers(1, 6).flatmap(lambda m: st.permutations(range(1 << m))))
def test_every_permutation_is_one_pair_of_butterflies(target):
    target_N = np.array(target)
    factors = permutation(target_N)
    matrix = oracle_product(factors)
    assert (matrix[target_N, np.arange(len(target))] == 1).all()
    assert matrix.sum() == len(target)
    assert len(kaleidoscope(factors)) == 1
    assert len(factors) == 2 * log2_exactly(len(target)) - 1


@given(st.integers(1, 5).flatmap(lambda m: st.lists(
    st.integers(NOWHERE, (1 << m) - 1), min_size=1 << m, max_size=1 << m
)))  # fmt: skip
def test_routes_copy_any_row_to_any_rows(source):
    source_N = np.array(source)
    factors = route(source_N)
    expected = np.zeros((len(source),) * 2, int)
    for row, place in enumerate(source):
        if place != NOWHERE:
            expected[row, place] = 1
    np.testing.assert_array_equal(oracle_product(factors), expected)
    assert len(factors) == route_length(len(source))
    assert len(kaleidoscope(factors)) <= 3


@pytest.mark.parametrize("place", [NOWHERE, 0, 7])
def test_one_row_may_go_everywhere_or_none_anywhere(place):
    x_BN = np.arange(1, 9)[None]
    expected = 0 if place == NOWHERE else place + 1
    assert (apply(route(np.full(8, place)), x_BN) == expected).all()


@given(SEEDS, st.integers(1, 8), st.integers(1, 4))
def test_linear_circuits_are_three_pairs_a_level(seed, G, depth):
    """Gates on any earlier row; G is any number, the rows a power of two."""
    rng, N = np.random.default_rng(seed), rows_for(2 * G)
    x_BN = np.zeros((2, N), int)
    x_BN[:, :G] = y_BG = rng.integers(-9, 10, (2, G))
    factors = []
    for _ in range(depth):
        left_G, right_G = rng.integers(0, G, (2, G))
        a_G, b_G = rng.integers(-3, 4, (2, G))
        factors += linear_level(left_G, right_G, a_G, b_G, N)
        y_BG = np.array([[a_G[g] * y[left_G[g]] + b_G[g] * y[right_G[g]] for g in range(G)] for y in y_BG])
    found_BN = run(program(merged(factors)), x_BN)
    np.testing.assert_array_equal(found_BN[:, :G], y_BG)
    assert not found_BN[:, G:].any()
    assert len(kaleidoscope(merged(factors))) <= 3 * depth


@pytest.mark.parametrize("N", [2, 4, 32, 256])
def test_fourier_transform(N):
    x_BN = np.random.default_rng(N).standard_normal((2, N))
    for found_BN in (apply(fourier(N), x_BN), run(program(fourier(N)), x_BN.astype(complex))):
        np.testing.assert_allclose(found_BN, np.fft.fft(x_BN), rtol=0, atol=1e-11)
    assert len(kaleidoscope(fourier(N))) <= 2


def test_a_factor_has_its_four_diagonals():
    factor = Factor(1, np.arange(1, 5), np.arange(5, 9))
    expected = [[1, 0, 5, 0], [0, 2, 0, 6], [7, 0, 3, 0], [0, 8, 0, 4]]
    assert oracle_factor(factor).tolist() == expected
    assert factor(np.eye(4, dtype=int)).T.tolist() == expected


def test_sizes_that_cannot_be_are_refused_with_the_smallest_that_works():
    with pytest.raises(ConfigError, match="take 8"):
        permutation(np.arange(6))
    with pytest.raises(ConfigError, match="take 2"):
        permutation(np.arange(1))
    ones = np.ones(3, int)
    with pytest.raises(ConfigError, match="need 8"):
        linear_level(0 * ones, 0 * ones, ones, ones, 4)


def test_checks_hold():
    assert {f.verdict for f in check_butterfly(np.random.default_rng(0), 24)} == {HOLDS}
