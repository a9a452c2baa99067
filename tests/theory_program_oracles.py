"""BaseConv, Hyena, gated recurrences and circuits read literally, number by number; and what tests draw."""

import numpy as np
from hypothesis import strategies as st

SEEDS = st.integers(0, 2**32 - 1)


def oracle_conv(h, u, cyclic):
    """Down each column, the products of all pairs of coefficients whose powers of X add up; lists of rows."""
    N, D = len(u), len(u[0])
    y = [[0] * D for _ in range(N)]
    for c in range(D):
        for i in range(N):
            for j in range(N):
                power = i + j
                if power >= N and not cyclic:
                    continue
                y[power % N][c] += h[i][c] * u[j][c]
    return y


def oracle_base_conv(W, b1, h, b2, u, cyclic):
    """Definition 4.1, for one sequence; lists of rows."""
    N, D = len(u), len(u[0])
    conv = oracle_conv(h, u, cyclic)
    gate = [[sum(u[i][k] * W[k][c] for k in range(D)) + b1[i][c] for c in range(D)] for i in range(N)]
    return [[gate[i][c] * (conv[i][c] + b2[i][c]) for c in range(D)] for i in range(N)]


def oracle_program(layers, u, shape, shape_out):
    """Zero padding, layer after layer, cropping; on Python integers, which never wrap."""
    (N, D), (rows, columns) = layers[0].b1_ND.shape, shape
    u = [[int(u[i][c]) if i < rows and c < columns else 0 for c in range(D)] for i in range(N)]
    for x in layers:
        weights = (x.W_DD, x.b1_ND, x.h.dense(N, D), x.b2_ND)
        u = oracle_base_conv(*(w.tolist() for w in weights), u, x.cyclic)
    return [row[: shape_out[1]] for row in u[: shape_out[0]]]


def oracle_circuit(circuit, inputs):
    """Gate by gate, on Python integers."""
    values = [*inputs, *circuit.constants.tolist()]
    for kind, left, right in zip(circuit.kind, circuit.left, circuit.right, strict=True):
        a, b = values[left], values[right]
        values.append(a + b if kind == 0 else a * b)
    return [values[wire] for wire in circuit.outputs]


def oracle_factor(factor):
    """The matrix of a butterfly factor from its four diagonals in each block (definition H.14)."""
    N, half = len(factor.own_N), 1 << factor.bit
    matrix = np.zeros((N, N), factor.own_N.dtype)
    for block in range(0, N, 2 * half):
        for j in range(half):
            a, b = block + j, block + half + j
            matrix[a, a], matrix[a, b] = factor.own_N[a], factor.other_N[a]
            matrix[b, a], matrix[b, b] = factor.other_N[b], factor.own_N[b]
    return matrix


def oracle_product(factors):
    """The matrix of factors in the order in which they are applied."""
    product = np.eye(len(factors[0].own_N), dtype=object)
    for factor in factors:
        product = oracle_factor(factor).astype(object) @ product
    return product
