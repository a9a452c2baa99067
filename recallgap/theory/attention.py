"""Attention solves MQAR (Zoology, arXiv 2312.04927, Proposition 4.3 = H.27): two layers with fixed weights.

A row of the input is a token in the paper's encoding of 3 c columns, in which a key, a value and a query
stand in columns of their own ([k | v | q], one-hot), and the one-hot of its position in N = 3n columns. The
layers have no softmax, and the second has a mask M:

    layer 1   u <- u + (Q K^T) V     Q, K: positions, K moved up one; V: values. k_j's row gets v_j
    layer 2   y = (Q K^T * M) V      Q: queries; K: keys; V: values.               1 where q_i = k_j

Errata. The printed layer 2 has no mask, so it answers from the present and from later pairs; M[i, j] = 1
where j's pair lies before i's mends it. It sums the values of all matches, which is the answer where keys are
unique. Where they repeat, a recency factor mends that: M[i, j] = 3^-(pairs between), as in RetNet, makes the
latest match outweigh all earlier ones together, and the largest channel is the answer. The position
columns are ours: the 3 c columns tell a key from a value, and not which value comes next. Unique keys need
n <= c, so N <= 3 c and parameters stay O(c^2).
Legend: B sequences, n triples, N = 3n rows, c tokens, D = 3c + N columns.
"""

import numpy as np

from recallgap.errors import ConfigError
from recallgap.theory.finding import ERRATUM, FAILS, Finding
from recallgap.theory.mqar import KINDS, NO_ANSWER, answers, random_triples

MASKS = ("strict", "recency", "printed")
SEVERAL = -2
"""In the place of an answer where values of several tokens were summed."""
FADE = 1 / 3
"""All matches before the latest weigh less than FADE + FADE^2 + .. = 1/2 of it. (Beyond 600 pairs float64 has
no numbers for it.)"""
SIZES = (1, 2, 3, 5, 8, 13, 16)


def encode(keys_Bn, values_Bn, queries_Bn, c):
    """The input, (B, N, D); ConfigError where a token is not below c."""
    triples_Bn3 = np.stack([keys_Bn, values_Bn, queries_Bn], axis=2)
    if triples_Bn3.size and not 0 <= triples_Bn3.min() <= triples_Bn3.max() < c:
        raise ConfigError(
            f"encoding triples one-hot in {c} tokens: they go from {triples_Bn3.min()} to "
            f"{triples_Bn3.max()}; the smallest c that works is {triples_Bn3.max() + 1}, from token 0 on"
        )
    B, n, _ = triples_Bn3.shape
    u_BNX = np.zeros((B, n, 3, 3, c))
    for kind in range(3):
        u_BNX[:, :, kind, kind] = triples_Bn3[:, :, kind, None] == np.arange(c)
    places_BNN = np.broadcast_to(np.eye(3 * n), (B, 3 * n, 3 * n))
    return np.concatenate([u_BNX.reshape(B, 3 * n, 3 * c), places_BNN], axis=2)


def weights(n, c):
    """((W_Q, W_K, W_V) of layer 1, the same of layer 2)."""
    N = 3 * n
    key_Dc, value_Dc, query_Dc = np.split(np.eye(3 * c + N, 3 * c), 3, axis=1)
    place_DN = np.eye(3 * c + N, N, -3 * c)
    before_DN = np.eye(3 * c + N, N, -3 * c - 1)  # row p asks as p, row p + 1 is found as p
    to_values_DD = value_Dc @ value_Dc.T
    return (place_DN, before_DN, to_values_DD), (query_Dc, key_Dc, value_Dc)


def n_params(layers):
    """Numbers of all weights, zeros included."""
    return sum(W.size for layer in layers for W in layer)


def mask(n, kind):
    """M of layer 2, (N, N), one of MASKS; "printed" is none."""
    pair_N = np.repeat(np.arange(n), 3)
    between_NN = np.subtract.outer(pair_N, pair_N) - 1
    if kind == "printed":
        return np.ones_like(between_NN)
    return np.where(between_NN >= 0, FADE ** np.maximum(between_NN, 0) if kind == "recency" else 1, 0)


def attend(u_BND, layer, mask_NN=None):
    """Attention without softmax, (Q K^T * M) V."""
    W_Q, W_K, W_V = layer
    scores_BNN = (u_BND @ W_Q) @ (u_BND @ W_K).transpose(0, 2, 1)
    return (scores_BNN if mask_NN is None else scores_BNN * mask_NN) @ (u_BND @ W_V)


def outputs(keys_Bn, values_Bn, queries_Bn, c, *, kind="strict"):
    """What layer 2 says at the queries' rows, (B, n, c)."""
    n = keys_Bn.shape[1]
    first, second = weights(n, c)
    u_BND = encode(keys_Bn, values_Bn, queries_Bn, c)
    u_BND = u_BND + attend(u_BND, first)
    return attend(u_BND, second, mask(n, kind))[:, 2::3]


def read(y_Bnc, *, kind="strict"):
    """The token of the only channel that is not 0, with "recency" of the largest, (B, n).

    NO_ANSWER where all are 0, SEVERAL where it is not the only one.
    """
    n_found_Bn = (y_Bnc != 0).sum(axis=2)
    token_Bn = np.where(n_found_Bn == 0, NO_ANSWER, y_Bnc.argmax(axis=2))
    return token_Bn if kind == "recency" else np.where(n_found_Bn > 1, SEVERAL, token_Bn)


def check_attention(rng, n_instances):
    """Each mask on unique and on repeated keys, against the literal algorithm; parameters."""
    right = {name: 0 for name in ("strict", "recency", "printed", "strict, keys repeat")}
    asked, repeated, ratios = 0, 0, []
    for n in SIZES:
        d = max(1, (2 * n - 1).bit_length())
        B, c = -(-n_instances // (2 * len(SIZES))), 2**d
        for kind in KINDS:
            triples = random_triples(rng, B, n, d, kind)
            expected_Bn = answers(*triples)
            found = {name: read(outputs(*triples, c, kind=name), kind=name) for name in MASKS}
            same = {name: int((x == expected_Bn).all(axis=1).sum()) for name, x in found.items()}
            unique = kind in ("unique", "no match")
            right["recency"] += same["recency"]
            right["strict" if unique else "strict, keys repeat"] += same["strict"]
            right["printed"] += unique * same["printed"]
            asked, repeated = asked + unique * B, repeated + (not unique) * B
        ratios.append(n_params(weights(n, c)) / c**2)
    exact = right["strict"] == asked and right["recency"] == asked + repeated
    return [
        Finding(
            statement="Proposition H.27",
            claim="two attention layers without softmax, strict mask between pairs, unique keys",
            bound="solves MQAR; O(c^2) parameters",
            measured=f"{asked - right['strict']} differ; {min(ratios):.0f} to {max(ratios):.0f} c^2 "
            f"parameters, n = {SIZES[0]} to {SIZES[-1]}",
            instances=asked,
            verdict=ERRATUM if right["strict"] == asked else FAILS,
        ),
        Finding(
            statement="Proposition H.27",
            claim="without the mask as printed; keys that repeat, summed or with a recency factor",
            bound="solves MQAR",
            measured=f"right on {right['printed'] / asked:.0%} without the mask; where keys repeat on "
            f"{right['strict, keys repeat'] / repeated:.0%} summed, and "
            f"{asked + repeated - right['recency']} of all differ with the factor",
            instances=asked + repeated,
            verdict=ERRATUM if exact else FAILS,
        ),
    ]
