"""BaseConv and Hyena express each other (Zoology, arXiv 2312.04927, proposition H.12).

The Hyena layer of D channels and order 2, as `models.mixers.hyena` has it (Poli et al. 2023, 2302.10866):

    x0, x1, v = short conv (u W + b) + c      W (D, 3 D); the short filter and c per channel
    y = (x0 * (long conv (x1 * v))) W_o + b_o

Both convolutions are causal, down the columns; the skip d * (x1 * v) is part of the long filter's first tap.

Hyena as BaseConv: five layers, 3 D columns
    1  u W + b          2  short conv, + c         3  x1 times v         4  x0 times long conv
    5  W_o, b_o
BaseConv (causal) as Hyena: two layers, 4 D channels. Hyena has no weights of a position such as b1 and b2,
but a long filter turns a channel of ones into running sums of its taps, so into any b.
    1  [u conv h | 1 conv (differences of b2) | (u W) conv delta | 1 conv (differences of b1)]; W_o adds them
       by pairs: p = h conv u + b2 and g = u W + b1
    2  x0 = g, v = p
Constant factors both ways, as the proposition says. A cyclic layer is not a Hyena layer: see `compiler`.
The trainable mixer `models.mixers.base_conv` is a causal layer of definition 4.1, b1 and b2 with equal rows.
Legend: B batch, N positions, D channels.
"""

from dataclasses import dataclass

import numpy as np

from recallgap.errors import ConfigError
from recallgap.theory.base_conv import Filter, Program, convolve, layer, random_layer
from recallgap.theory.finding import FAILS, HOLDS, Finding

FLOAT64_TOLERANCE, FLOAT32_TOLERANCE = 1e-13, 1e-4
"""Of the largest output: sums and products of some tens of terms of unit size, 500 roundings at most."""


@dataclass(frozen=True, eq=False)
class HyenaLayer:
    """The layer above; short (K, 3 D) and long (N, D) hold taps by shift."""

    W_DX: np.ndarray
    b_X: np.ndarray
    short_KX: np.ndarray
    c_X: np.ndarray
    long_ND: np.ndarray
    W_out_DD: np.ndarray
    b_out_D: np.ndarray

    def __call__(self, u_BND):
        """y, (B, N, D)."""
        short_BNX = _conv(self.short_KX, u_BND @ self.W_DX + self.b_X) + self.c_X
        x0_BND, x1_BND, v_BND = np.split(short_BNX, 3, axis=2)
        return (x0_BND * _conv(self.long_ND, x1_BND * v_BND)) @ self.W_out_DD + self.b_out_D


def _conv(taps_KD, x_BND):
    taps_KD = taps_KD[: x_BND.shape[1]]
    return np.moveaxis(convolve(Filter.of(taps_KD), np.moveaxis(x_BND, 2, 0), cyclic=False), 0, 2)


def hyena_as_base_conv(hyena):
    """Five BaseConv layers."""
    (N, D), dtype = hyena.long_ND.shape, hyena.long_ND.dtype
    x0, x1, v = np.split(np.eye(3 * D, dtype=np.int8), 3)
    project, out, b_out = (np.zeros(shape, dtype) for shape in (*2 * [(3 * D, 3 * D)], 3 * D))
    project[:D], out[2 * D :, :D], b_out[:D] = hyena.W_DX, hyena.W_out_DD, hyena.b_out_D
    long_NX = hyena.long_ND @ v
    layers = (
        layer(N, 3 * D, W=project, b1=hyena.b_X, b2=1),
        layer(N, 3 * D, b1=1, h=Filter.of(hyena.short_KX[:N]), b2=hyena.c_X, cyclic=False),
        layer(N, 3 * D, W=x1.T @ v, b1=x0.sum(0), h=Filter.delta(3 * D)),
        layer(N, 3 * D, W=x0.T @ v, h=Filter.of(long_NX), cyclic=False),
        layer(N, 3 * D, W=out, b1=b_out, b2=1),
    )
    return Program((N, D), layers, (N, D))


def base_conv_as_hyena(step):
    """Two Hyena layers of 4 D channels, for inputs with 3 D channels of zeros after them."""
    if step.cyclic:
        raise ConfigError(
            "writing a BaseConv layer as Hyena layers: it is cyclic, but Hyena is causal; give a causal layer"
        )
    N, D = step.b1_ND.shape
    conv, b2, gate, b1 = np.split(np.eye(4 * D), 4)
    ones = np.ones(4 * D)
    x1_from_u = conv.sum(0) + gate.sum(0)
    W_DX = np.zeros((4 * D, 12 * D))
    W_DX[:D, 4 * D : 8 * D] = conv + step.W_DD @ gate
    delta_ND = np.zeros((N, D))
    delta_ND[0] = 1
    long_ND = np.concatenate(
        [step.h.dense(N, D), _differences(step.b2_ND), delta_ND, _differences(step.b1_ND)], axis=1
    )
    by_pairs = (conv + b2).T @ conv + (gate + b1).T @ gate
    first = _plain(W_DX, np.concatenate([ones, 1 - x1_from_u, ones]), long_ND, by_pairs)
    W_DX = np.zeros((4 * D, 12 * D))
    W_DX[:, : 4 * D], W_DX[:, 8 * D :] = gate.T @ conv, conv.T @ conv
    b_X = np.concatenate([0 * ones, ones, 0 * ones])
    return first, _plain(W_DX, b_X, np.tile(delta_ND, 4), np.eye(4 * D))


def _differences(b_ND):
    """The filter that turns a column of ones into b."""
    return np.diff(b_ND, axis=0, prepend=0)


def _plain(W_DX, b_X, long_ND, W_out_DD):
    """A Hyena layer whose short convolution does nothing."""
    return HyenaLayer(W_DX, b_X, np.ones((1, len(b_X))), 0 * b_X, long_ND, W_out_DD, np.zeros(len(W_out_DD)))


def random_hyena(rng, N, D, K):
    """Weights like N(0, 1) over the root of what they add up."""
    return HyenaLayer(
        rng.standard_normal((D, 3 * D)) / D**0.5, rng.standard_normal(3 * D),
        rng.standard_normal((K, 3 * D)) / K**0.5, rng.standard_normal(3 * D),
        rng.standard_normal((N, D)) / N**0.5, rng.standard_normal((D, D)) / D**0.5, rng.standard_normal(D),
    )  # fmt: skip


def run_hyena(layers, u_BNd):
    """The first d channels after Hyena layers on u and channels of zeros."""
    d, D = u_BNd.shape[2], len(layers[0].W_DX)
    u_BND = np.concatenate([u_BNd, np.zeros((*u_BNd.shape[:2], D - d), u_BNd.dtype)], axis=2)
    for hyena in layers:
        u_BND = hyena(u_BND)
    return u_BND[:, :, :d]


def in_float32(hyena):
    return HyenaLayer(*(x.astype(np.float32) for x in vars(hyena).values()))


def base_conv_of(mixer, N):
    """The layer of definition 4.1 that the trainable mixer is on N positions; explicit taps only."""
    W_DD, b1_D, taps_KD, b2_D = (
        x.detach().numpy() for x in (mixer.gate.weight.T, mixer.gate.bias, mixer.taps_DK.T, mixer.bias_D)
    )
    return layer(N, len(b2_D), W=W_DD, b1=b1_D, h=Filter.of(taps_KD[:N]), b2=b2_D, cyclic=False)


def random_mixer(rng, N, D, K):
    """A trainable base_conv in float64 with weights N(0, 1); K = None for taps as long as the context N."""
    import torch

    from recallgap.models.mixer import Place
    from recallgap.models.mixers.base_conv import BaseConv

    place = Place(layer=0, n_layers=1, context_len=N)
    mixer = BaseConv(D, BaseConv.Options(kernel_len=K), place).double()
    with torch.no_grad():
        for parameter in mixer.parameters():
            parameter.copy_(torch.from_numpy(rng.standard_normal(parameter.shape)))
    return mixer


def distance(found, expected):
    """Largest difference, relative to the largest expected number."""
    return float(abs(found - expected).max() / max(1, abs(expected).max()))


def check_hyena(rng, n_instances):
    """Both directions on random weights; the way from BaseConv exactly, on integers."""
    import torch

    worst, worst_mixer, wrong = {np.float64: 0.0, np.float32: 0.0}, 0.0, 0
    for _ in range(n_instances):
        N, D, K = rng.integers((1, 1, 1), (40, 5, 5)).tolist()
        hyena, u_1ND = random_hyena(rng, N, D, K), rng.standard_normal((1, N, D))
        expected_1ND = hyena(u_1ND)
        for dtype, given in ((np.float64, hyena), (np.float32, in_float32(hyena))):
            found_1ND = hyena_as_base_conv(given)(u_1ND.astype(dtype))
            assert found_1ND.dtype == dtype
            worst[dtype] = max(worst[dtype], distance(found_1ND, expected_1ND))
        mixer = random_mixer(rng, N, D, [None, K][N % 2])
        with torch.no_grad():
            trained_1ND = mixer(torch.from_numpy(u_1ND), context=None).numpy()
        worst_mixer = max(worst_mixer, distance(base_conv_of(mixer, N)(u_1ND), trained_1ND))
        step, u_1ND = random_layer(rng, N, D, cyclic=False), rng.integers(-9, 10, (1, N, D))
        found_1ND = run_hyena(base_conv_as_hyena(step), u_1ND.astype(np.float64))
        wrong += not np.array_equal(np.rint(found_1ND).astype(np.int64), step(u_1ND))
    float64, float32 = worst[np.float64], worst[np.float32]
    return [
        Finding(
            statement="Proposition H.12",
            claim="a Hyena layer as BaseConv layers, random weights",
            bound="O(1) layers",
            measured=f"5 layers of 3 d columns; within {float64:.0e} (float64), {float32:.0e} (float32)",
            instances=n_instances,
            verdict=HOLDS if float64 < FLOAT64_TOLERANCE and float32 < FLOAT32_TOLERANCE else FAILS,
        ),
        Finding(
            statement="Proposition H.12",
            claim="a causal BaseConv layer as Hyena layers, random integer weights",
            bound="O(1) layers",
            measured=f"2 layers of 4 d channels; {wrong} differ",
            instances=n_instances,
            verdict=FAILS if wrong else HOLDS,
        ),
        Finding(
            statement="Definition 4.1",
            claim="the trainable mixer base_conv is such a layer",
            bound="equal",
            measured=f"within {worst_mixer:.0e}",
            instances=n_instances,
            verdict=HOLDS if worst_mixer < FLOAT64_TOLERANCE else FAILS,
        ),
    ]
