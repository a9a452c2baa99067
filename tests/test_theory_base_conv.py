"""BaseConv layers and primitives equal the definition read literally."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from theory_program_oracles import SEEDS, oracle_conv, oracle_program

from recallgap.errors import ConfigError
from recallgap.theory.base_conv import (
    FFT_TOLERANCE,
    Filter,
    Layer,
    Program,
    check_base_conv,
    direct_conv,
    fft_conv,
    layer,
)
from recallgap.theory.finding import HOLDS
from recallgap.theory.primitives import (
    affine,
    check_primitives,
    random_program,
    remember,
    reset,
    running_sum,
    shift,
    stack,
)


@given(SEEDS, st.integers(1, 7), st.integers(1, 3), st.integers(1, 3), st.booleans())
def test_a_program_is_definition_4_1_layer_by_layer(seed, N, D, n_layers, big):
    """Batched, padded and cropped; with numbers beyond int64 in the object type."""
    rng = np.random.default_rng(seed)
    shape, shape_out = ((int(rng.integers(1, N + 1)), int(rng.integers(1, D + 1))) for _ in range(2))
    program = random_program(rng, shape, (N, D), shape_out, n_layers)
    u_BNd = rng.integers(-9, 10, (2, *shape)).astype(object) * (10**20 if big else 1)
    expected = [oracle_program(program.layers, u, shape, shape_out) for u in u_BNd]
    assert program(u_BNd).tolist() == expected
    if not big:
        wrapped = np.array([[[x % 2**64 for x in row] for row in rows] for rows in expected], dtype=np.uint64)
        np.testing.assert_array_equal(program(u_BNd.astype(np.int64)), wrapped.astype(np.int64))


@given(SEEDS, st.integers(1, 40), st.integers(1, 3), st.booleans())
def test_both_forms_of_the_convolution_are_polynomial_products(seed, N, D, cyclic):
    rng = np.random.default_rng(seed)
    h_ND, u_DBN = rng.standard_normal((N, D)), rng.standard_normal((D, 2, N))
    expected = np.array([oracle_conv(h_ND, u_DBN[:, b].T, cyclic) for b in range(2)]).transpose(2, 0, 1)
    size = max(1.0, abs(u_DBN).max() * abs(h_ND).sum(0).max())
    for form in (direct_conv, fft_conv):
        found_DBN = form(Filter.of(h_ND), u_DBN, cyclic=cyclic)
        assert abs(found_DBN - expected).max() < FFT_TOLERANCE * size
        assert (
            form(Filter.of(h_ND.astype(np.float32)), u_DBN.astype(np.float32), cyclic=cyclic).dtype
            == np.float32
        )


def test_taps_of_one_place_add_up_and_a_dense_filter_comes_back():
    h = Filter.taps((2, 0, 3), (2, 0, 4), (0, 1, -1))
    assert h.dense(3, 2).tolist() == [[0, -1], [0, 0], [7, 0]]
    u_DBN = np.arange(6).reshape(2, 1, 3)
    again = Filter.of(h.dense(3, 2))
    assert direct_conv(h, u_DBN, cyclic=True).tolist() == direct_conv(again, u_DBN, cyclic=True).tolist()


def test_a_program_computes_in_its_inputs_number_type():
    program = stack(shift(4, 1, 1), affine(np.full((4, 1), 3), np.full((4, 1), -2)))
    for dtype in (np.int8, np.int64, np.float32):
        assert program(np.ones((2, 4, 1), dtype)).dtype == dtype


def test_weights_beyond_int8_are_kept():
    program = affine(np.array([[300]]), np.array([[-1000]]))
    assert program(np.array([[[2]]])).tolist() == [[[-400]]]


def test_notation_and_parameters():
    program = random_program(np.random.default_rng(0), (3, 1), (8, 2), (4, 2), 5)
    assert program.notation == (3, 5, 1, 8, 2)
    assert program.n_params == 5 * (2 * 2 + 3 * 8 * 2)


def test_primitives_on_small_inputs():
    u_1Nd = np.array([[[1], [2], [3], [4], [5]]])

    def column(program):
        return program(u_1Nd)[0, :, 0].tolist()

    assert column(shift(5, 1, 2)) == [0, 0, 1, 2, 3]
    assert column(shift(5, 1, -2)) == [3, 4, 5, 0, 0]
    assert column(running_sum(5, 1)) == [1, 3, 6, 10, 15]
    assert column(running_sum(5, 1, 2)) == [1, 2, 4, 6, 9]
    assert column(reset(np.array([[1], [0], [1], [1], [0]]))) == [1, 0, 3, 4, 0]
    assert column(affine(np.array([[0], [1], [2], [-1], [0]]), np.array([[7], [0], [1], [0], [0]]))) == [
        7,
        2,
        7,
        -4,
        0,
    ]
    kept = remember(stack(shift(5, 1, 1), running_sum(5, 1)))
    assert kept(u_1Nd)[0].tolist() == [[0, 1], [1, 2], [3, 3], [6, 4], [10, 5]]


def test_layers_of_primitives():
    mask = np.ones((6, 2), int)
    primitives = shift(6, 2, 1), shift(6, 2, -5), running_sum(6, 2), reset(mask), affine(mask, mask)
    assert [p.n_layers for p in primitives] == [1, 1, 1, 1, 2]
    assert remember(affine(mask, mask)).n_layers == 4
    assert stack(shift(6, 2, 1), affine(mask, mask)).n_layers == 3


@given(SEEDS)
def test_stacking_clears_what_the_first_program_leaves_outside_its_output(seed):
    rng = np.random.default_rng(seed)
    f = random_program(rng, (3, 1), (6, 2), (4, 1), 2)
    g = random_program(rng, (4, 1), (6, 2), (5, 2), 2)
    u_1Nd = rng.integers(-9, 10, (1, 3, 1))
    np.testing.assert_array_equal(stack(f, g)(u_1Nd), g(f(u_1Nd)))
    assert stack(f, g).n_layers == 5


def test_checks_hold():
    rng = np.random.default_rng(0)
    findings = check_base_conv(rng, 30) + check_primitives(rng, 30)
    assert [f.verdict for f in findings] == [HOLDS] * 7


ONES = np.ones((4, 2))
REFUSED = [
    (lambda: shift(4, 1, 4), "shift by at most 3"),
    (lambda: running_sum(4, 1, 0), "must be at least 1"),
    (lambda: layer(4, 1, h=Filter.taps((-1, 0, 1))), "the cyclic form and the shift N - s"),
    (lambda: Layer(ONES[:1, :1], ONES, Filter.delta(2), ONES), r"expected \(2, 2\) and \(4, 2\)"),
    (lambda: Program((9, 1), shift(4, 1, 1).layers, (4, 1)), "an input of 9 x 1, but a workspace of 4 x 1"),
    (lambda: Program((1, 1), (), (1, 1)), "at least one layer"),
    (lambda: shift(4, 1, 1)(np.ones((2, 3, 1))), r"expected \(batch, 4, 1\)"),
    (lambda: stack(shift(4, 1, 1), shift(5, 1, 1)), "both must agree"),
]  # fmt: skip


@pytest.mark.parametrize(("act", "text"), REFUSED)
def test_nonsense_is_refused(act, text):
    with pytest.raises(ConfigError, match=text):
        act()
