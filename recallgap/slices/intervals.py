"""Estimates and intervals from per-document sums; the document is the sampling unit.

Tokens of one document are not independent, so intervals that treat them so are several times too narrow. A
mean loss or gap is a ratio of sums over documents: a delete-one-document jackknife gives its standard error,
Student's t its width. A share is a ratio of two means that are both uncertain: Fieller's theorem gives the
set of shares that the data do not exclude, which is no interval when the whole gap may be 0.

Not covered: training seeds, the choice of corpus, the tokenizer.

Legend: D documents, G groups of 8 documents, R random draws.
Sources: Cochran 1977 chapter 6 and Efron 1982 (jackknife of a ratio), Fieller 1954, Miller 2024
(arXiv:2411.00640; clustered errors in language-model evaluation).
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

NODES, WEIGHTS = np.polynomial.legendre.leggauss(64)
GROUP = 8


@dataclass(frozen=True)
class Interval:
    """An estimate with a confidence interval; None where it cannot be told."""

    estimate: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class ShareSet:
    """A share with its Fieller set.

    kind "interval": [low, high]. When the whole is not distinguishable from 0 the share is undefined, and the
    set is "outside" (all but what lies between low and high) or "everything". "unknown": a single document.
    """

    estimate: float | None
    kind: str
    low: float | None = None
    high: float | None = None


@lru_cache(maxsize=4096)
def t_quantile(level, df):
    """The t with P(-t < T < t) = `level` for Student's T with `df` degrees of freedom; error below 1e-8 of t.

    With x = sqrt(df) tan(a) the density of a is proportional to cos(a)^(df - 1).

    >>> round(t_quantile(0.95, 1), 4), round(t_quantile(0.95, 29), 4)
    (12.7062, 2.0452)
    """
    log_scale = math.lgamma((df + 1) / 2) - math.lgamma(df / 2) + math.log(2 / math.sqrt(math.pi))
    low, high = 0.0, math.pi / 2
    for _ in range(100):
        middle = (low + high) / 2
        angles = (NODES + 1) * middle / 2
        mass = math.exp(log_scale) * middle / 2 * float(WEIGHTS @ np.cos(angles) ** (df - 1))
        low, high = (middle, high) if mass < level else (low, middle)
    return math.sqrt(df) * math.tan(low)


def mean_interval(sum_D, n_D, level):
    """Jackknife-t interval of sum(sum_D) / sum(n_D). Documents with n = 0 are no sampling units of this mean.

    Deleting document d leaves (S - S_d) / (n - n_d), so all D deletions cost O(D).
    """
    held_D = n_D > 0
    sum_D, n_D = sum_D[held_D], n_D[held_D]
    n_documents = len(n_D)
    if n_documents == 0:
        return Interval(None)
    total, n_tokens = sum_D.sum(), n_D.sum()
    estimate = float(total / n_tokens)
    if n_documents == 1:
        return Interval(estimate)
    without_D = (total - sum_D) / (n_tokens - n_D)
    variance = (n_documents - 1) / n_documents * float(np.square(without_D - without_D.mean()).sum())
    half = t_quantile(level, n_documents - 1) * math.sqrt(variance)
    return Interval(estimate, estimate - half, estimate + half)


def share_set(part_D, whole_D, level):
    """Fieller-t set of sum(part_D) / sum(whole_D): every s for which mean(part - s whole) may be 0.

    Solves (b^2 - t^2 V_bb) s^2 - 2 (a b - t^2 V_ab) s + (a^2 - t^2 V_aa) <= 0, with a, b the means over
    documents and V the covariance matrix of these means.
    """
    n_documents, part, whole = len(whole_D), part_D.sum(), whole_D.sum()
    estimate = float(part / whole) if whole else None
    if n_documents < 2:
        return ShareSet(estimate, "unknown")
    a, b = part / n_documents, whole / n_documents
    (v_aa, v_ab), (_, v_bb) = np.cov(part_D, whole_D) / n_documents
    t2 = t_quantile(level, n_documents - 1) ** 2
    square, cross, constant = b * b - t2 * v_bb, a * b - t2 * v_ab, a * a - t2 * v_aa
    inside = cross * cross - square * constant
    if square <= 0 and (inside <= 0 or square == 0):
        return ShareSet(estimate, "everything")
    root = math.sqrt(max(inside, 0.0))
    low, high = sorted(((cross - root) / square, (cross + root) / square))
    return ShareSet(estimate, "interval" if square > 0 else "outside", low, high)


def sign_flip_p(sum_D, n_draws, seed):
    """P-value of "the gap is 0", two-sided: how often random signs of the document sums reach |sum(sum_D)|.

    A group of 8 documents has 256 sums, one for each choice of signs, so a random byte draws all 8 at once.
    """
    padded_GE = np.pad(sum_D, (0, -len(sum_D) % GROUP)).reshape(-1, GROUP)
    signs_SE = 1.0 - 2.0 * np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1)
    sums_GS = padded_GE @ signs_SE.T
    n_groups, random = len(sums_GS), np.random.default_rng(seed)
    reach, reached = abs(float(sum_D.sum())) * (1 - 1e-12), 0
    block = max(1, (1 << 22) // n_groups)
    for start in range(0, n_draws, block):
        bytes_RG = random.integers(0, 256, (min(block, n_draws - start), n_groups), dtype=np.uint8)
        reached += int((np.abs(sums_GS[np.arange(n_groups), bytes_RG].sum(axis=1)) >= reach).sum())
    return (1 + reached) / (1 + n_draws)


def effective_documents(n_D):
    """(sum n)^2 / sum n^2: the number of equally long documents that would weigh as these do.

    >>> float(effective_documents(np.array([10, 10, 10, 10])))
    4.0
    """
    return n_D.sum() ** 2 / np.square(n_D.astype(np.float64)).sum()
