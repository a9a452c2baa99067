"""Cross- and autocorrelation, and the shifts they choose (Zoology, arXiv 2312.04927, section H.8.1).

    u~[t] = u[-t],   u * v the cyclic convolution,   u star v = u~ * v,   (u star v)[s] = sum_i u[i] v[i+s]

As polynomials the paper writes u~(X) = X^{n-1} u(1/X), the coefficients read backwards, and
w = coeff(u(X) u~(X) mod X^n - 1). Erratum: backwards is u[n-1-t], and not u[-t], so that w[s] is the
autocorrelation at s + 1; one more factor X mends it, and is in `polynomial_correlation`.

Top(w, t): the t shifts with the largest w. Shift 0 always has the largest autocorrelation and brings nothing,
so it is left out; of equal shifts the smaller comes first. (The cyclic autocorrelation is equal at s and
n - s, so every shift has a rival.)
Legend: n length, t shifts; a leading ... is any batch.
"""

import numpy as np

from recallgap.errors import ConfigError
from recallgap.theory.finding import ERRATUM, FAILS, HOLDS, Finding

FLOAT64_TOLERANCE = 1e-12
"""Of the sum of |u_i| |v_j|: FFTs of some hundred points in float64."""
LONGEST = 200


def cross_correlation(u, v):
    """u star v along the last axis, by FFT: (..., n). Integers come out exact, as integers."""
    n = u.shape[-1]
    if v.shape[-1] != n:
        raise ConfigError(
            f"correlating vectors of {n} and {v.shape[-1]} entries: both must have the same length; pad the "
            "shorter one with zeros"
        )
    w = np.fft.irfft(np.fft.rfft(u).conj() * np.fft.rfft(v), n)
    integers = u.dtype.kind in "iub" and v.dtype.kind in "iub"
    return np.rint(w).astype(np.int64) if integers else w


def polynomial_correlation(u_n, v_n):
    """u star v of two vectors as coeff(X u~(X) v(X) mod X^n - 1), with the paper's u~(X)."""
    return np.roll(printed_correlation(u_n, v_n), 1)


def printed_correlation(u_n, v_n):
    """coeff(u~(X) v(X) mod X^n - 1) with u~(X) = X^{n-1} u(1/X), as printed: u star v from shift 1 on."""
    n = len(u_n)
    product = np.convolve(u_n[::-1], v_n)
    product[: n - 1] += product[n:]
    return product[:n]


def top_shifts(w, t):
    """Top(w, t): the t best shifts from 1 on, best first, (..., t); fewer where the vector is short.

    >>> top_shifts(np.array([9, 1, 4, 4, 2]), 3).tolist()
    [2, 3, 4]
    """
    if t < 1:
        raise ConfigError(f"choosing the top {t} shifts: ask for at least 1")
    return np.argsort(-w[..., 1:], axis=-1, kind="stable")[..., :t] + 1


def check_autocorrelation(rng, n_instances):
    """The FFT against the sum written out and against the polynomial form, integers and floats."""
    wrong, printed_right, rotated, worst = 0, 0, 0, 0.0
    for i in range(n_instances):
        n, high = int(rng.integers(1, LONGEST)), (2, 10, 1000)[i % 3]
        u_n, v_n = rng.integers(-high, high + 1, (2, n))
        if i % 2:
            v_n = u_n
        shifted_nn = v_n[np.add.outer(np.arange(n), np.arange(n)) % n]
        literal_n = shifted_nn @ u_n
        wrong += not np.array_equal(cross_correlation(u_n, v_n), literal_n)
        wrong += not np.array_equal(polynomial_correlation(u_n, v_n), literal_n)
        printed_n = printed_correlation(u_n, v_n)
        printed_right += np.array_equal(printed_n, literal_n)
        rotated += np.array_equal(printed_n, np.roll(literal_n, -1))
        x_n, y_n = rng.standard_normal((2, n))
        difference_n = cross_correlation(x_n, y_n) - polynomial_correlation(x_n, y_n)
        worst = max(worst, float(abs(difference_n).max() / (abs(x_n).sum() * abs(y_n).max())))
    return [
        Finding(
            statement="Section H.8.1",
            claim="cross- and autocorrelation, FFT and polynomial form, against the sum",
            bound="equal",
            measured=f"{wrong} integer results differ; float64 within {worst:.0e} of sum|u| max|v|, "
            f"n = 1 to {LONGEST - 1}",
            instances=n_instances,
            verdict=HOLDS if wrong == 0 and worst < FLOAT64_TOLERANCE else FAILS,
        ),
        Finding(
            statement="Section H.8.1",
            claim="u~(X) = X^{n-1} u(1/X) as printed is u[-t] rotated by one",
            bound="equal",
            measured=f"equal to u star v in {printed_right / n_instances:.1%} of the instances, to its "
            f"rotation in {rotated / n_instances:.1%}",
            instances=n_instances,
            verdict=ERRATUM if rotated == n_instances else FAILS,
        ),
    ]
