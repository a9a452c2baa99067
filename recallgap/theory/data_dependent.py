"""MQAR by kernels made from the input (Zoology, arXiv 2312.04927, section H.8.2, Theorem H.38 = 4.5).

Tokens are one-hot in c columns; a triple (k_i, v_i, q_i) takes rows 3i to 3i + 2 of N = 3n. Given t lags,
    h^k = sum over l of X^{r_l + (l-1) S}       h^v = sum over l of X^{r_l - 1 + (l-1) S}       (Eq. 19)
put t copies of the keys and of the values into blocks of S rows, each moved by a lag r_l of its own, and
    layer 1   [V | Q | K] = [u | u | u] * masks      rows of values, of queries, of keys         (Eq. 20)
    layer 2   [h^v conv V | Q in each block | h^k conv K]
    layer 3   y = Q * K                     1 where query and moved key agree
    layer 4   z = (y 1_{c x c}) * V         a match spread over all channels lets the moved value pass
    layer 5   Linear_sum: the blocks added up; the answer of i stands in row 3i + 2
is one BaseConv program. 3c columns hold what the paper computes from u side by side. Lags:

    printed     Top(u star u, t), the autocorrelation of all rows, cyclic, summed over channels
    corrected   Top of the cross-correlation of keys with queries, K star Q padded, at r = 3s + 2, s >= 1

Errata, all of which the tests show: (a) no linear map common to all rows can keep the rows of keys alone;
position masks do, here in b2. (b) An interaction distance of s triples is a lag of 3s + 2 rows from key to
query, of 3s + 1 from value to query. (c) Lag 0 must be left out, and so must 2, the distance 0 of triples: a
query may equal its own key. (d) Blocks of N/3 rows overlap: what a lag moves beyond row N lands in the next
block as a false match; S = 2N keeps it apart. (e) Keys must be unique, else values add up. (f) The best lags
of u star u may be of other matches (values with values): the rule works on inputs that it `covers`; the
corrected rule works whenever at most t distances occur.
Legend: B sequences, n triples, c tokens, t lags, S rows of a block.
"""

import numpy as np

from recallgap.errors import ConfigError
from recallgap.theory.autocorrelation import cross_correlation, top_shifts
from recallgap.theory.base_conv import Filter, Program, layer
from recallgap.theory.finding import ERRATUM, FAILS, Finding
from recallgap.theory.mqar import NO_ANSWER, answers

V, Q, K = range(3)
"""Places of the three parts among the columns; the answer is read where the values stand."""
OWN_KEY = 2
"""The lag from a triple's key to its own query, which is no answer."""
SEVERAL = -2
"""In the place of an answer where several values were added up."""
SIZES = ((1, 1), (2, 1), (3, 2), (5, 1), (5, 2), (7, 4), (8, 2), (11, 3), (12, 4))
"""Triples and lags of the instances of the check."""


def rows_of(keys_n, values_n, queries_n):
    """The tokens row by row, (N,)."""
    return np.stack([keys_n, values_n, queries_n], axis=1).ravel()


def one_hot(tokens_N, c):
    """(N, c); ConfigError where a token is not below c."""
    if tokens_N.size and not 0 <= tokens_N.min() <= tokens_N.max() < c:
        raise ConfigError(
            f"encoding tokens one-hot in {c} columns: they go from {tokens_N.min()} to {tokens_N.max()}; the "
            f"smallest c that works is {tokens_N.max() + 1}, from token 0 on"
        )
    return (tokens_N[:, None] == np.arange(c)).astype(np.int64)


def printed_lags(u_Nc, t):
    """Top(u star u, t) in rows, without lags 0 and 2."""
    w_N = cross_correlation(u_Nc.T, u_Nc.T).sum(axis=0)
    return np.array([r for r in top_shifts(w_N, t + 1) if r != OWN_KEY])[:t]


def corrected_lags(u_Nc, t):
    """The t most frequent lags from an earlier triple's key to an equal query, those that occur."""
    N = len(u_Nc)
    keys_cM, queries_cM = np.zeros((2, u_Nc.shape[1], 2 * N), np.int64)
    keys_cM[:, :N:3], queries_cM[:, 2:N:3] = u_Nc[::3].T, u_Nc[2::3].T
    w_N = cross_correlation(keys_cM, queries_cM).sum(axis=0)[:N]
    w_N[: OWN_KEY + 1] = 0
    lags = top_shifts(w_N, t)
    return lags[w_N[lags] > 0]


def needed_lags(keys_n, queries_n):
    """Lags in rows of all matches j < i: 3 (i - j) + 2."""
    i, j = np.nonzero(np.tril(queries_n[:, None] == keys_n, -1))
    return np.unique(3 * (i - j) + 2)


def covers(lags, keys_n, queries_n):
    """The assumption: keys are unique, and the lags hold all that are needed."""
    return len(np.unique(keys_n)) == len(keys_n) and bool(np.isin(needed_lags(keys_n, queries_n), lags).all())


def program(lags, n, c):
    """The five layers for these lags, on a workspace of t blocks of S rows and 3c columns: V, Q, K."""
    N, S, t = 3 * n, 6 * n, len(lags)
    if n < 1 or t < 1 or min(lags) < 1 or max(lags) >= N:
        raise ConfigError(
            f"a program for {n} triples and the lags {list(lags)}: it needs at least 1 triple and 1 lag, and "
            f"lags from 1 to {N - 1} rows"
        )
    shape, starts = (S * t, 3 * c), [S * block for block in range(t)]
    keys = [int(lag) + start for lag, start in zip(lags, starts, strict=True)]
    masks = np.zeros(shape, np.int64)
    for part, first in ((V, 1), (Q, 2), (K, 0)):
        masks[first:N:3, part * c : (part + 1) * c] = 1
    to_all_parts = sum(_weights(c, 0, part, np.eye(c, dtype=np.int64)) for part in (V, Q, K))
    values = np.arange(3 * c) // c == V
    here = _taps(c, [0], [0], [0])
    layers = (
        layer(*shape, W=to_all_parts, b2=masks),
        layer(*shape, b1=1, h=_taps(c, [key - 1 for key in keys], starts, keys)),
        layer(*shape, W=_weights(c, Q, K, np.eye(c, dtype=np.int64)), b1=values.astype(np.int64), h=here),
        layer(*shape, W=_weights(c, K, V, 1), h=here),
        layer(*shape, b1=1, h=_taps(c, [-start % shape[0] for start in starts], [], [])),
    )
    return Program((N, c), layers, (N, c))


def _weights(c, source, target, block_cc):
    """W that takes the columns of one part to those of another."""
    W_DD = np.zeros((3 * c, 3 * c), np.int64)
    W_DD[source * c : (source + 1) * c, target * c : (target + 1) * c] = block_cc
    return W_DD


def _taps(c, *shifts_of_part):
    """The filter with taps at these shifts in every column of V, of Q and of K."""
    return Filter.taps(
        *(
            (shift, part * c + column, 1)
            for part, shifts in enumerate(shifts_of_part)
            for shift in shifts
            for column in range(c)
        )
    )


def solve(keys_n, values_n, queries_n, c, lags):
    """What the program for these lags answers, (n,): a value, NO_ANSWER or SEVERAL."""
    n = len(keys_n)
    # lag 1 takes keys to values' rows, where no query is: it finds nothing, as there is nothing to find
    model = program(lags if len(lags) else [1], n, c)
    y_nc = model(one_hot(rows_of(keys_n, values_n, queries_n), c)[None])[0, 2::3]
    found_n = np.where(y_nc.any(axis=1), y_nc.argmax(axis=1), NO_ANSWER)
    return np.where(y_nc.sum(axis=1) > 1, SEVERAL, found_n)


def random_instance(rng, n, t):
    """Keys, values, queries (n,) of tokens below 2n: keys unique, at most t distinct distances.

    Of queries with an earlier key at a distance drawn from t, half equal it; a few equal their own key.
    """
    tokens = rng.permutation(2 * n)
    keys_n, queries_n, values_n = tokens[:n], tokens[n:].copy(), rng.integers(0, 2 * n, n)
    distances = rng.permutation(np.arange(1, max(n, 2)))[:t]
    for i in range(1, n):
        distance = int(rng.choice(distances))
        if distance <= i and rng.random() < 0.5:
            queries_n[i] = keys_n[i - distance]
        elif rng.random() < 0.1:
            queries_n[i] = keys_n[i]
    return keys_n, values_n, queries_n


def check_data_dependent(rng, n_instances):
    """Both rules against the literal algorithm; how often the printed one's lags are the needed ones."""
    wrong, wrong_covered, covered, right_uncovered, ratios = 0, 0, {}, 0, []
    for i in range(n_instances):
        n, t = SIZES[i % len(SIZES)]
        triples, c = random_instance(rng, n, t), 2 * n
        expected_n = answers(*(x[None] for x in triples))[0]
        u_Nc = one_hot(rows_of(*triples), c)
        lags = corrected_lags(u_Nc, t)
        wrong += not np.array_equal(solve(*triples, c, lags), expected_n)
        lags = printed_lags(u_Nc, t)
        fits = covers(lags, triples[0], triples[2])
        if len(needed_lags(triples[0], triples[2])):
            covered.setdefault(t, []).append(fits)
        same = np.array_equal(solve(*triples, c, lags), expected_n)
        wrong_covered += fits and not same
        right_uncovered += same and not fits
    for n, t in SIZES:
        ratios.append(program(t * [1], n, 2 * n).n_params / (t * 3 * n * 2 * n))
    shares = ", ".join(f"{np.mean(x):.0%} at t = {t}" for t, x in sorted(covered.items()))
    return [
        Finding(
            statement="Theorem H.38",
            claim="kernels from Top(u star u, t) as printed, where they hold the needed lags",
            bound="solves MQAR with at most t distances",
            measured=f"{wrong_covered} that hold them differ; of instances with a match {shares} hold them; "
            f"{right_uncovered} of the others right",
            instances=n_instances,
            verdict=FAILS if wrong_covered else ERRATUM,
        ),
        Finding(
            statement="Theorem H.38",
            claim="kernels from keys star queries, own key left out, at most t distances",
            bound="solves MQAR; O(1) layers, O(t N c) parameters",
            measured=f"{wrong} differ; 5 layers; {min(ratios):.0f} to {max(ratios):.0f} t N c parameters",
            instances=n_instances,
            verdict=FAILS if wrong else ERRATUM,
        ),
    ]
