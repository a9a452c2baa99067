"""How much a recurrent state must hold (Zoology, arXiv 2312.04927, Theorem H.23 and Corollary H.24).

INDEX: Alice has n bits x, Bob a place i; she sends b bits once, he says x_i. It needs b = Omega(n) (H.23).
The reduction: triples (key j, value x_j, idle query) for j < n, then one triple whose query is key i. Its
answer is x_i, and until the last triple nothing depends on i: Alice runs a recurrent model over her part and
sends its state, Bob goes on from there. So a model that solves MQAR has a state of Omega(n) bits (H.24).

With errors: if Bob is right with probability a on random bits and places,
    b >= (1 - H(1 - a)) n,   H(p) = -p log2 p - (1-p) log2(1-p)
as b >= I(x; message) >= sum_i I(x_i; message) >= sum_i 1 - H(error of i) by Fano's inequality, H concave.

The argument counts bits, so it needs a state of finite precision; the paper leaves that out. One real number
could hold all n bits (`OneNumber`): in float64 it holds 53.
Models here are bit machines: `start()`, `step(state, triple)`, `read(state, query)`, a state of `bits` bits.
Legend: B instances, n bits of x, m numbers of a state, p bits of a number, b = m p.
"""

from dataclasses import dataclass

import numpy as np

from recallgap.errors import ConfigError
from recallgap.theory.finding import ERRATUM, FAILS, HOLDS, Finding
from recallgap.theory.mqar import answers

EXACT_BITS = 53
"""Significant bits of a float64."""
N_BITS = 32
"""Bits of x in the table of the check."""
LINEAR = ((2, 2), (4, 2), (8, 2), (4, 4), (8, 4), (16, 4), (32, 4), (64, 5), (256, 6))
"""(m, p) of the linear states of the check."""
SAMPLING = 4
"""Standard deviations by which a measured accuracy may pass the bound."""


def index_to_mqar(bits_Bn, place_B):
    """Keys 0 .. n - 1, values n and n + 1 for 0 and 1, and n + 2, which asks nothing; each (B, n + 1)."""
    B, n = bits_Bn.shape
    idle_B1 = np.full((B, 1), n + 2)
    keys_Bn = np.concatenate([np.tile(np.arange(n), (B, 1)), idle_B1], axis=1)
    values_Bn = np.concatenate([bits_Bn + n, idle_B1], axis=1)
    queries_Bn = np.concatenate([np.full((B, n), n + 2), place_B[:, None]], axis=1)
    return keys_Bn, values_Bn, queries_Bn


def message(model, keys_Bn, values_Bn, queries_Bn):
    """Alice's part: the states after all triples but the last."""
    state = model.start(len(keys_Bn))
    for j in range(keys_Bn.shape[1] - 1):
        state = model.step(state, keys_Bn[:, j], values_Bn[:, j], queries_Bn[:, j])
    return state


def accuracy(model, rng, n_instances, n):
    """How often Bob is right on random bits and a random place, all of n bits."""
    bits_Bn, place_B = rng.integers(0, 2, (n_instances, n)), rng.integers(0, n, n_instances)
    triples = index_to_mqar(bits_Bn, place_B)
    said_B = model.read(message(model, *triples), triples[2][:, -1])
    return float((said_B - n == bits_Bn[np.arange(n_instances), place_B]).mean())


def entropy(p):
    """H(p) in bits.

    >>> float(entropy(0.5)), float(entropy(0.0))
    (1.0, 0.0)
    """
    q = np.stack([p, 1 - np.asarray(p)])
    return -(q * np.log2(np.where(q > 0, q, 1))).sum(axis=0) + 0.0  # 0 log 0 is 0, and -0.0 is 0.0


def bits_needed(accuracy, n):
    """The least b for an accuracy of at least 1/2: (1 - H(1 - a)) n."""
    return (1 - entropy(1 - np.asarray(accuracy))) * n


def best_accuracy(b, n):
    """The largest accuracy that b bits allow: the a with b = (1 - H(1 - a)) n, by bisection."""
    low, high = 0.5, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if bits_needed(middle, n) <= b else (low, middle)
    return high


@dataclass(frozen=True)
class Store:
    """Keeps the first b bits as they are and guesses 0 for the others: accuracy 1/2 + b / 2n."""

    n: int
    b: int

    def __post_init__(self):
        if not 0 <= self.b <= self.n:
            raise ConfigError(f"storing {self.b} of {self.n} bits: choose from 0 to {self.n}")

    @property
    def bits(self):
        return self.b

    def start(self, B):
        return np.zeros((B, self.b), np.int8)

    def step(self, state_Bb, key_B, value_B, query_B):  # noqa: ARG002
        kept_B = key_B < self.b
        state_Bb[kept_B, key_B[kept_B]] = value_B[kept_B] - self.n
        return state_Bb

    def read(self, state_Bb, query_B):
        padded_Bn = np.pad(state_Bb, ((0, 0), (0, self.n - self.b)))
        return padded_Bn[np.arange(len(query_B)), query_B] + self.n


@dataclass(frozen=True, eq=False)
class LinearState:
    """Linear attention, Z <- Z + phi(k) v, v = -1 or 1, answer sign(phi(q) . Z), on m numbers of p bits.

    phi(k) are random signs. A number of p bits is a whole number from -2^(p-1) to 2^(p-1) - 1; it stays at
    the end of its range when it would leave it, and is read with a half added, so that none lacks a sign.
    """

    n: int
    phi_nm: np.ndarray
    p: int

    @classmethod
    def random(cls, rng, n, m, p):
        if m < 1 or p < 1:
            raise ConfigError(f"a linear state of {m} numbers of {p} bits: it needs at least 1 of each")
        return cls(n, rng.choice([-1, 1], (n, m)), p)

    @property
    def bits(self):
        return self.phi_nm.shape[1] * self.p

    def start(self, B):
        return np.zeros((B, self.phi_nm.shape[1]), np.int64)

    def step(self, Z_Bm, key_B, value_B, query_B):  # noqa: ARG002
        end = 1 << (self.p - 1)
        written_Bm = self.phi_nm[key_B] * (2 * (value_B - self.n) - 1)[:, None]
        return np.clip(Z_Bm + written_Bm, -end, end - 1)

    def read(self, Z_Bm, query_B):
        return ((self.phi_nm[query_B] * (2 * Z_Bm + 1)).sum(axis=1) > 0) + self.n


@dataclass(frozen=True)
class OneNumber:
    """Z <- Z + v 2^-k: all bits in the digits of one float64, which is exact for 53 of them."""

    n: int
    bits = 64

    def start(self, B):
        return np.zeros(B)

    def step(self, Z_B, key_B, value_B, query_B):  # noqa: ARG002
        return Z_B + (value_B - self.n) * 0.5**key_B

    def read(self, Z_B, query_B):
        return np.floor(Z_B * 2.0**query_B) % 2 + self.n


def space_table(rng, n_instances, n=N_BITS):
    """[(model, b, accuracy, what b bits allow)], ascending in b."""
    stores = [Store(n, b) for b in (0, n // 8, n // 4, n // 2, 3 * n // 4, n)]
    linear = [LinearState.random(rng, n, m, p) for m, p in LINEAR]
    models = [(f"store {x.b}", x) for x in stores]
    models += [(f"linear {x.phi_nm.shape[1]} x {x.p}", x) for x in linear]
    rows = [
        (name, x.bits, accuracy(x, rng, n_instances, n), best_accuracy(min(x.bits, n), n))
        for name, x in models
    ]
    return sorted(rows, key=lambda row: row[1])


def check_space(rng, n_instances):
    """The reduction, the number of states an exact model has, and accuracies below the bound."""
    wrong = 0
    for n in (1, 2, 5, 8, 24, EXACT_BITS):
        B = -(-n_instances // 6)
        bits_Bn, place_B = rng.integers(0, 2, (B, n)), rng.integers(0, n, B)
        triples = index_to_mqar(bits_Bn, place_B)
        wrong += int((answers(*triples)[:, -1] - n != bits_Bn[np.arange(B), place_B]).sum())
        for model in (Store(n, n), OneNumber(n)):
            wrong += accuracy(model, rng, B, n) < 1
    rows = space_table(rng, n_instances)
    above = sum(a > bound + SAMPLING * (bound * (1 - bound) / n_instances) ** 0.5 for _, _, a, bound in rows)
    lost = accuracy(OneNumber(2 * EXACT_BITS), rng, n_instances, 2 * EXACT_BITS)
    shown = "; ".join(f"{name}: {a:.2f} of {bound:.2f}" for name, b, a, bound in rows if 8 <= b <= N_BITS)
    return [
        Finding(
            statement="Theorem H.23",
            claim="INDEX as MQAR with one query, the state as message; states that hold n bits",
            bound="answer x_i",
            measured=f"{wrong} differ, n = 1 to {EXACT_BITS}",
            instances=n_instances,
            verdict=FAILS if wrong else HOLDS,
        ),
        Finding(
            statement="Corollary H.24",
            claim="accuracy on INDEX of a state of b bits, against b >= (1 - H(error)) n",
            bound="Omega(N) bits",
            measured=f"{above} of {len(rows)} above their bound, n = {N_BITS}: {shown}",
            instances=n_instances,
            verdict=FAILS if above else HOLDS,
        ),
        Finding(
            statement="Corollary H.24",
            claim="one real number as state: needs the premise of finite precision",
            bound="Omega(N) bits",
            measured=f"a float64 is exact for n = {EXACT_BITS}, right in {lost:.0%} for {2 * EXACT_BITS}",
            instances=n_instances,
            verdict=ERRATUM if lost < 1 else FAILS,
        ),
    ]
