"""Butterfly factors, and how they move rows: any permutation, any copying (Zoology, section H.4).

A butterfly factor (arXiv 2312.04927, definition H.14; Dao et al. 2020, arXiv 2012.14966) mixes pairs of rows
whose numbers differ in one bit:

    y[i] = own[i] x[i] + other[i] x[i xor 2^bit]

A butterfly matrix B is the product of one factor a bit, bit 0 applied first; B* (here: transposed) applies
them in the other order. N log N products evaluate it, N = 2^m. Products are lists of factors in the order in
which they are applied; neighbours of one bit are merged into one.

    permutation   one BB*: factors of bits m-1, .., 0, .., m-1 (the network of Benes 1965)
    route         y[i] = x[source[i]] with any number of readers a row: three BB*. Sources are brought
                  together, copied (each to an interval, by one B*: sources without gaps, in the order of
                  their intervals, never collide), and the copies permuted
Legend: N rows, M of the moved items.
"""

from dataclasses import dataclass

import numpy as np

from recallgap.errors import ConfigError

NOWHERE = -1
"""Source of a row that becomes 0."""


@dataclass(frozen=True, eq=False)
class Factor:
    """y[i] = own[i] x[i] + other[i] x[i xor 2^bit]."""

    bit: int
    own_N: np.ndarray
    other_N: np.ndarray

    def __call__(self, x_BN):
        """y, (.., N)."""
        return self.own_N * x_BN + self.other_N * x_BN[..., self.partner_N]

    @property
    def partner_N(self):
        return np.arange(len(self.own_N)) ^ (1 << self.bit)

    @property
    def transposed(self):
        return Factor(self.bit, self.own_N, self.other_N[self.partner_N])

    def after(self, first):
        """The factor that does what `first`, of the same bit, and then this one do."""
        own_N = self.own_N * first.own_N + self.other_N * first.other_N[self.partner_N]
        other_N = self.own_N * first.other_N + self.other_N * first.own_N[self.partner_N]
        return Factor(self.bit, own_N, other_N)


def log2_exactly(N):
    """m of N = 2^m; ConfigError for another N."""
    if N < 2 or N & (N - 1):
        raise ConfigError(
            f"a butterfly of {N} rows: their number must be a power of two, at least 2; take {rows_for(N)}"
        )
    return N.bit_length() - 1


def rows_for(n):
    """The smallest N = 2^m >= 2 that holds n rows."""
    return 1 << max(1, (n - 1).bit_length())


def apply(factors, x_BN):
    """The product of the factors and x."""
    for factor in factors:
        x_BN = factor(x_BN)
    return x_BN


def transposed(factors):
    return [factor.transposed for factor in reversed(factors)]


def merged(factors):
    """The same product without two neighbours of one bit."""
    kept = []
    for factor in factors:
        if kept and kept[-1].bit == factor.bit:
            factor = factor.after(kept.pop())
        kept.append(factor)
    return kept


def _moving(N, bit, from_M, to_M):
    """The factor that moves items between rows that differ in no other bit; all else becomes 0."""
    own_N, other_N = np.zeros(N, np.int8), np.zeros(N, np.int8)
    stays_M = from_M == to_M
    own_N[to_M[stays_M]] = 1
    other_N[to_M[~stays_M]] = 1
    return Factor(bit, own_N, other_N)


def permutation(target_N):
    """Factors that move row i to row target[i]: 2 m - 1 of them, one BB*.

    From the highest bit down: an item goes to the half (0 or 1 in this bit) in which it is permuted by the
    rest of the network, and at the end from there to its target. The two items of a pair of rows, before as
    after, must go to different halves. Following the pairs from item to item gives circles: two for each set
    of items that depend on each other, which take a half each.
    """
    N = len(target_N)
    items_N = np.arange(N)
    at_N, to_N, there, back = items_N, np.asarray(target_N), [], []
    for bit in reversed(range(log2_exactly(N))):
        on_row_N, for_row_N = np.empty_like(items_N), np.empty_like(items_N)
        on_row_N[at_N], for_row_N[to_N] = items_N, items_N
        beside_N = on_row_N[at_N ^ (1 << bit)]
        next_N = for_row_N[to_N[beside_N] ^ (1 << bit)]
        circle_N = items_N
        for _ in range(bit):
            circle_N, next_N = np.minimum(circle_N, circle_N[next_N]), next_N[next_N]
        half_N = (circle_N > circle_N[beside_N]).astype(np.int64)
        entry_N, exit_N = (rows_N & ~(1 << bit) | half_N << bit for rows_N in (at_N, to_N))
        there.append(_moving(N, bit, at_N, entry_N))
        back.append(_moving(N, bit, exit_N, to_N))
        at_N, to_N = entry_N, exit_N
    return merged([*there, *reversed(back)])


def route(source_N):
    """Factors for y[i] = x[source[i]], or 0 where source[i] is NOWHERE: `route_length` of them."""
    N = len(source_N)
    readers_M = np.flatnonzero(source_N != NOWHERE)
    readers_M = readers_M[np.argsort(source_N[readers_M], kind="stable")]
    sources, reader_of_M = np.unique(source_N[readers_M], return_inverse=True)
    gather = permutation(_completed(sources, np.arange(len(sources)), N))
    copies_M, copy = np.arange(len(readers_M)), []
    at_M = reader_of_M
    for bit in reversed(range(log2_exactly(N))):
        to_M = at_M & ~(1 << bit) | copies_M & (1 << bit)
        copy.append(_moving(N, bit, at_M, to_M))
        at_M = to_M
    return merged([*gather, *copy, *permutation(_completed(copies_M, readers_M, N))])


def route_length(N):
    """Factors of every route of N = 2^m rows: 5 m - 3, where all are of one bit 1."""
    m = log2_exactly(N)
    return 5 * m - 3 if m > 1 else 1


def _completed(from_M, to_M, N):
    """Some permutation (target of each row) that moves row from[k] to row to[k] for each k."""
    target_N = np.empty(N, np.int64)
    rest_from, rest_to = np.ones(N, bool), np.ones(N, bool)
    rest_from[from_M], rest_to[to_M] = False, False
    target_N[from_M] = to_M
    target_N[rest_from] = np.flatnonzero(rest_to)
    return target_N
