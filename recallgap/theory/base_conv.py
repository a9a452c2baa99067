"""BaseConv exactly as Definition 4.1 of Zoology (arXiv 2312.04927), and programs made of such layers.

    y = (u W + b1) * (h conv u + b2)       W (D, D); h, b1, b2 (N, D); * entry by entry

The convolution runs down each column, and is a product of polynomials: causal, mod X^N (what would leave the
bottom is lost), or cyclic, mod X^N - 1 (it comes in again at the top). Integers stay integers: int64 wraps
where a value leaves its range, dtype object never does.

A program is (N, L, d, N', d')-BaseConv in the paper's notation: its input of N rows and d columns stands in
the upper left corner of a workspace of N' rows and d' columns that is zero elsewhere, L layers change the
workspace, and the output is its upper left corner again.

The filters of programs have a few taps, so a filter is stored as its taps and applied tap by tap. Long float
filters go through an FFT instead, within FFT_TOLERANCE times (largest |u| x sum of |h|) of the exact result.
Legend: B batch, N rows, D columns, K taps of all columns together.
"""

from dataclasses import dataclass

import numpy as np

from recallgap.errors import ConfigError
from recallgap.theory.finding import FAILS, HOLDS, Finding

LONGEST_DIRECT = 16
"""Taps a column, on average, up to which floats are convolved tap by tap, as integers always are."""
FFT_TOLERANCE = 1e-13


@dataclass(frozen=True, eq=False)
class Filter:
    """h by its taps: X^shift with the coefficient `value` in `column`; several add up."""

    shift_K: np.ndarray
    column_K: np.ndarray
    value_K: np.ndarray

    @classmethod
    def of(cls, h_ND):
        """The filter whose coefficients are h."""
        shift_K, column_K = np.nonzero(h_ND)
        return cls(shift_K, column_K, h_ND[shift_K, column_K])

    @classmethod
    def taps(cls, *taps):
        """The filter of (shift, column, value) triples."""
        shift_K, column_K, value_K = (np.array([tap[i] for tap in taps]) for i in range(3))
        return cls(shift_K, column_K, _narrow(value_K))

    @classmethod
    def delta(cls, D):
        """Convolution with it changes nothing."""
        return cls(np.zeros(D, np.int64), np.arange(D), np.ones(D, np.int8))

    def dense(self, N, D):
        """h, (N, D)."""
        h_ND = np.zeros((N, D), dtype=self.value_K.dtype)
        np.add.at(h_ND, (self.shift_K, self.column_K), self.value_K)
        return h_ND


NO_TAPS = Filter(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int8))


@dataclass(frozen=True, eq=False)
class Layer:
    """One BaseConv layer of Definition 4.1."""

    W_DD: np.ndarray
    b1_ND: np.ndarray
    h: Filter
    b2_ND: np.ndarray
    cyclic: bool = True
    """Convolve mod X^N - 1 rather than mod X^N."""

    def __post_init__(self):
        (N, D), shift_K, column_K = self.b1_ND.shape, self.h.shift_K, self.h.column_K
        if self.W_DD.shape != (D, D) or self.b2_ND.shape != (N, D):
            raise ConfigError(
                f"a BaseConv layer of {N} rows and {D} columns (its b1) got W of shape {self.W_DD.shape} and "
                f"b2 of shape {self.b2_ND.shape}; expected {(D, D)} and {(N, D)}"
            )
        if len(shift_K) and (shift_K.min() < 0 or shift_K.max() >= N or column_K.max() >= D):
            raise ConfigError(
                f"a BaseConv layer of {N} rows and {D} columns has taps at shifts {shift_K.min()} to "
                f"{shift_K.max()} and columns to {column_K.max()}; its filter has {N} coefficients in each "
                f"of {D} columns. To shift up by s, take the cyclic form and the shift N - s"
            )

    def __call__(self, u_BND):
        """y, (B, N, D); in memory column by column, as a program's next layer likes it."""
        u_DBN = np.moveaxis(u_BND, 2, 0)
        conv_DBN = convolve(self.h, u_DBN, cyclic=self.cyclic) + self.b2_ND.T[:, None]
        return np.moveaxis(self._gate(u_DBN) * conv_DBN, 0, 2)

    def _gate(self, u_DBN):
        """u W + b1, entry by entry of W: programs have few, and numpy multiplies integer matrices slowly."""
        b1_D1N = self.b1_ND.T[:, None]
        gate_DBN = np.zeros(u_DBN.shape, np.result_type(u_DBN, self.W_DD, self.b1_ND)) + b1_D1N
        for source, column in np.argwhere(self.W_DD).tolist():
            gate_DBN[column] += _times(self.W_DD[source, column], u_DBN[source])
        return gate_DBN


def _times(weight, x_BN):
    return x_BN if weight == 1 else weight * x_BN


def layer(N, D, *, W=0, b1=0, h=NO_TAPS, b2=0, cyclic=True):
    """A layer whose matrices may be given as anything that broadcasts to them.

    Integers that fit into int8 are kept so: then a program computes in its input's number type.
    """
    W_DD, b1_ND, b2_ND = (
        np.broadcast_to(_narrow(np.asarray(x)), shape)
        for x, shape in ((W, (D, D)), (b1, (N, D)), (b2, (N, D)))
    )
    return Layer(W_DD, b1_ND, h, b2_ND, cyclic)


def _narrow(weights):
    fits = weights.dtype.kind in "iub" and (weights.astype(np.int8) == weights).all()
    return weights.astype(np.int8) if fits else weights


def convolve(h, u_DBN, *, cyclic):
    """h conv u along the rows of each column, (D, B, N)."""
    real = np.result_type(u_DBN, h.value_K).kind == "f"
    form = fft_conv if real and len(h.shift_K) > LONGEST_DIRECT * len(u_DBN) else direct_conv
    return form(h, u_DBN, cyclic=cyclic)


def direct_conv(h, u_DBN, *, cyclic):
    """The convolution as a sum over taps, exact in integers."""
    N = u_DBN.shape[2]
    y_DBN = np.zeros(u_DBN.shape, np.result_type(u_DBN, h.value_K))
    for shift, column, value in zip(h.shift_K.tolist(), h.column_K.tolist(), h.value_K, strict=True):
        x_BN, y_BN = u_DBN[column], y_DBN[column]
        y_BN[:, shift:] += _times(value, x_BN[:, : N - shift])
        if cyclic and shift:
            y_BN[:, :shift] += _times(value, x_BN[:, N - shift :])
    return y_DBN


def fft_conv(h, u_DBN, *, cyclic):
    """The convolution as a product of transforms, for real numbers."""
    D, _, N = u_DBN.shape
    n = N if cyclic else 2 * N
    h_f, u_f = np.fft.rfft(h.dense(N, D).T[:, None], n), np.fft.rfft(u_DBN, n)
    return np.fft.irfft(h_f * u_f, n)[..., :N].astype(np.result_type(u_DBN, h.value_K))


@dataclass(frozen=True, eq=False)
class Program:
    """Layers that share a workspace, and what of it is read and written."""

    shape: tuple[int, int]
    """Rows and columns of the input, N and d."""
    layers: tuple[Layer, ...]
    shape_out: tuple[int, int]
    """Rows and columns of the output."""

    def __post_init__(self):
        if len({x.b1_ND.shape for x in self.layers}) != 1:
            raise ConfigError("a BaseConv program needs at least one layer, and all of one workspace")
        for what, shape in (("input", self.shape), ("output", self.shape_out)):
            if shape[0] > self.workspace[0] or shape[1] > self.workspace[1]:
                raise ConfigError(
                    f"a BaseConv program has an {what} of {shape[0]} x {shape[1]}, but a workspace of "
                    f"{self.workspace[0]} x {self.workspace[1]}; it must be at least as large"
                )

    @property
    def workspace(self):
        """Rows and columns of the workspace, N' and d'."""
        return self.layers[0].b1_ND.shape

    @property
    def n_layers(self):
        return len(self.layers)

    @property
    def n_params(self):
        """Numbers of W, h, b1 and b2, zeros included."""
        N, D = self.workspace
        return self.n_layers * (D * D + 3 * N * D)

    @property
    def notation(self):
        """(N, L, d, N', d')."""
        return (self.shape[0], self.n_layers, self.shape[1], *self.workspace)

    def __call__(self, u_BNd):
        """The output of every sequence of a batch."""
        u_BNd = np.asarray(u_BNd)
        if u_BNd.ndim != 3 or u_BNd.shape[1:] != self.shape:
            raise ConfigError(
                f"running a BaseConv program for inputs of {self.shape[0]} x {self.shape[1]}: got an array "
                f"of shape {u_BNd.shape}, expected (batch, {self.shape[0]}, {self.shape[1]})"
            )
        (N, D), B = self.workspace, len(u_BNd)
        u_BND = np.moveaxis(np.zeros((D, B, N), u_BNd.dtype), 0, 2)
        u_BND[:, : self.shape[0], : self.shape[1]] = u_BNd
        for step in self.layers:
            u_BND = step(u_BND)
        return u_BND[:, : self.shape_out[0], : self.shape_out[1]]


def random_layer(rng, N, D, *, cyclic):
    """A layer of small random integers, all its taps used."""
    W_DD, b1_ND, h_ND, b2_ND = (rng.integers(-9, 10, shape) for shape in ((D, D), *3 * [(N, D)]))
    return Layer(W_DD, b1_ND, Filter.of(h_ND), b2_ND, cyclic)


def check_base_conv(rng, n_instances):
    """Layers of random integers against products of polynomials; float FFTs against the exact result."""
    wrong, worst = 0, 0.0
    for i in range(n_instances):
        N, D, cyclic = int(rng.integers(1, 20)), int(rng.integers(1, 5)), bool(i % 2)
        step, u_1ND = random_layer(rng, N, D, cyclic=cyclic), rng.integers(-9, 10, (1, N, D))
        h_ND, product_ND = step.h.dense(N, D), np.zeros((2 * N, D), np.int64)
        for column in range(D):
            product_ND[: 2 * N - 1, column] = np.convolve(h_ND[:, column], u_1ND[0, :, column])
        conv_ND = product_ND[:N] + cyclic * product_ND[N:]
        wrong += not np.array_equal(
            step(u_1ND)[0], (u_1ND[0] @ step.W_DD + step.b1_ND) * (conv_ND + step.b2_ND)
        )
        size = max(1, 9 * int(abs(h_ND).sum(axis=0).max()))
        floats_DN = fft_conv(step.h, u_1ND.transpose(2, 0, 1).astype(np.float64), cyclic=cyclic)[:, 0]
        worst = max(worst, float(abs(floats_DN.T - conv_ND).max()) / size)
    return [
        Finding(
            statement="Definition 4.1",
            claim="BaseConv layer, causal and cyclic, against polynomial products",
            bound="equal",
            measured=f"{wrong} integer layers differ; float64 FFTs within {worst:.0e} of max|u| sum|h|",
            instances=n_instances,
            verdict=HOLDS if wrong == 0 and worst < FFT_TOLERANCE else FAILS,
        )
    ]
