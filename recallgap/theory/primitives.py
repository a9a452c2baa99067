"""The primitives of BaseConv programs (Zoology, arXiv 2312.04927, propositions H.8 to H.10, lemma H.11).

Each returns a Program. How many layers it takes, whatever the sizes:

    shift         1     rows down (causal), or up: only the cyclic form can, a causal layer never reads below
    running_sum   1     every row gets the sum of the rows 0, m, 2m, .. above it
    reset         1     rows outside a mask become 0 ("resetting for next phase")
    affine        2     a * u + c; one layer cannot where a is 0 and c is not
    remember      L + 2 [f(u) | u] for a program f of L layers: u waits in columns of its own
    stack         L1 + L2, and one more where the first program leaves something outside its output

The paper lets u wait in rows of its own, below those of f; in columns it takes no layer of f along.
Legend: B batch, N rows, D columns of the workspace, d columns of the input.
"""

from collections import Counter

import numpy as np

from recallgap.errors import ConfigError
from recallgap.theory.base_conv import Filter, Layer, Program, layer, random_layer
from recallgap.theory.finding import FAILS, HOLDS, Finding


def shift(N, d, s):
    """Row i of the output is row i - s of the input, or 0 where there is none; s < 0 shifts up."""
    if abs(s) >= N:
        raise ConfigError(f"shifting {N} rows by {s} leaves nothing; shift by at most {N - 1}")
    rows = N if s >= 0 else N - s
    taps = Filter.taps(*((s % rows, column, 1) for column in range(d)))
    return Program((N, d), (layer(rows, d, b1=1, h=taps, cyclic=s < 0),), (N, d))


def running_sum(N, d, m=1):
    """Row i of the output is the sum of rows i, i - m, i - 2 m, ..: for m > 1, of blocks."""
    if m < 1:
        raise ConfigError(f"a running sum over every {m}th row: the step must be at least 1")
    taps = Filter.taps(*((s, column, 1) for s in range(0, N, m) for column in range(d)))
    return Program((N, d), (layer(N, d, b1=1, h=taps, cyclic=False),), (N, d))


def reset(keep_Nd):
    """The input where keep is 1, 0 where it is 0."""
    N, d = keep_Nd.shape
    return Program((N, d), (layer(N, d, b1=keep_Nd.astype(np.int8), h=Filter.delta(d)),), (N, d))


def affine(a_Nd, c_Nd):
    """a * u + c, entry by entry."""
    N, d = a_Nd.shape
    scale = layer(N, d, b1=a_Nd, h=Filter.delta(d))
    move = layer(N, d, W=np.eye(d, dtype=np.int8), b1=c_Nd, b2=1)
    return Program((N, d), (scale, move), (N, d))


def stack(first, second):
    """`second` on the output of `first`."""
    if first.shape_out != second.shape or first.workspace != second.workspace:
        raise ConfigError(
            f"stacking BaseConv programs: the first gives {first.shape_out} in a workspace "
            f"of {first.workspace}, the second takes {second.shape} in one of {second.workspace}; both must "
            "agree"
        )
    layers = first.layers + second.layers
    if first.shape_out != first.workspace:
        clear = np.zeros(first.workspace, np.int8)
        clear[: first.shape_out[0], : first.shape_out[1]] = 1
        layers = (*first.layers, *reset(clear).layers, *second.layers)
    return Program(first.shape, layers, second.shape_out)


def remember(f):
    """[f(u) | u]: f computed in the first columns while u waits in others."""
    (N, d), (rows, D), (N_out, d_out) = f.shape, f.workspace, f.shape_out
    one = np.eye(D + d, dtype=np.int8)
    keep, waiting = one[:D], one[D:]
    copied, side_by_side = one.copy(), np.zeros_like(one)
    copied[:d] += waiting
    side_by_side[:d_out], side_by_side[D:] = one[:d_out], one[d_out : d_out + d]
    clear = np.ones((rows, D + d), np.int8)
    clear[N_out:, :d_out] = 0
    layers = [
        layer(rows, D + d, W=copied, b2=1),
        *(_beside(x, keep, waiting) for x in f.layers),
        layer(rows, D + d, W=side_by_side, b2=clear),
    ]
    return Program((N, d), tuple(layers), (max(N, N_out), d_out + d))


def _beside(x, keep, waiting):
    """A layer x in the first columns that leaves the others alone; the matrices place the two groups."""
    D, d = len(keep), len(waiting)
    h = Filter(
        np.concatenate([x.h.shift_K, np.zeros(d, np.int64)]),
        np.concatenate([x.h.column_K, D + np.arange(d)]),
        np.concatenate([x.h.value_K, np.ones(d, x.h.value_K.dtype)]),
    )
    return Layer(keep.T @ x.W_DD @ keep, x.b1_ND @ keep + waiting.sum(0), h, x.b2_ND @ keep, x.cyclic)


def random_program(rng, shape, workspace, shape_out, n_layers):
    """Layers of small random integers."""
    layers = tuple(random_layer(rng, *workspace, cyclic=bool(rng.integers(2))) for _ in range(n_layers))
    return Program(shape, layers, shape_out)


def check_primitives(rng, n_instances):
    """Each primitive on random integers against the operation itself."""
    wrong, n_layers = Counter(), Counter()
    for _ in range(n_instances):
        N, d, M, N_between, d_workspace = rng.integers((2, 1, 0, 1, 0), (12, 4, 3, 12, 3)).tolist()
        u_1Nd, a_Nd, c_Nd = (rng.integers(-9, 10, (*lead, N, d)) for lead in ((1,), (), ()))
        s, m = int(rng.integers(1 - N, N)), int(rng.integers(1, N + 1))
        moved_Nd, summed_Nd = np.zeros_like(a_Nd), u_1Nd[0].copy()
        moved_Nd[max(s, 0) : N + min(s, 0)] = u_1Nd[0, max(-s, 0) : N - max(s, 0)]
        for i in range(m, N):
            summed_Nd[i] += summed_Nd[i - m]
        workspace, between = (max(N, N_between) + M, d + d_workspace), (N_between, d)
        f = random_program(rng, (N, d), workspace, between, 2)
        g = random_program(rng, between, workspace, (N, d), 1)
        both_Nd = np.zeros((max(N, N_between), 2 * d), np.int64)
        both_Nd[:N_between, :d], both_Nd[:N, d:] = f(u_1Nd)[0], u_1Nd[0]
        for name, program, expected_Nd in (
            ("shift", shift(N, d, s), moved_Nd),
            ("running_sum", running_sum(N, d, m), summed_Nd),
            ("reset", reset(a_Nd > 0), np.where(a_Nd > 0, u_1Nd[0], 0)),
            ("affine", affine(a_Nd, c_Nd), a_Nd * u_1Nd[0] + c_Nd),
            ("remember", remember(f), both_Nd),
            ("stack", stack(f, g), g(f(u_1Nd))[0]),
        ):
            wrong[name] += not np.array_equal(program(u_1Nd)[0], expected_Nd)
            n_layers[name] = max(n_layers[name], program.n_layers)
    return [
        Finding(
            statement=statement,
            claim=f"{name} against the operation itself",
            bound=bound,
            measured=f"layers: {n_layers[name]}{of}; {wrong[name]} differ",
            instances=n_instances,
            verdict=FAILS if wrong[name] else HOLDS,
        )
        for statement, name, bound, of in (
            ("Proposition H.8", "shift", "O(1) layers", ""),
            ("Proposition H.9", "running_sum", "O(1) layers", ""),
            ("Section H.3", "reset", "O(1) layers", ""),
            ("Section H.3", "affine", "O(1) layers", ""),
            ("Proposition H.10", "remember", "O(L) layers", " where f has 2"),
            ("Lemma H.11", "stack", "L1 + L2 layers", " for 2 + 1, one clears the workspace"),
        )
    ]
