"""Slices: ways to part the scored tokens, so that a gap can be located.

A family parts ALL scored tokens into named slices, each token into exactly one; so the contributions of its
slices add up to the gap. A new family is one function and one line in SLICES: it takes the opened labels and
says which label columns give each token the number of its slice.

Legend: T tokens.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from recallgap.slices.blocks import dictionary_values


@dataclass(frozen=True)
class Slice:
    """One part of a family."""

    name: str
    at_least: int | None = None
    """Smallest binned value in the slice, where it is a bin."""
    at_most: int | None = None
    """Largest binned value; None where the bin has no upper end."""
    group: str | None = None
    """What else the tokens of this bin share, where several slices have the same bin."""


@dataclass(frozen=True)
class Family:
    """A partition of the scored tokens."""

    slices: tuple
    """Its `Slice`s; a token's code is the index of its slice."""
    columns: tuple
    """Label columns that decide; `codes` takes them in this order."""
    codes: Callable
    """Arrays of the columns (T,) -> integers (T,). Domains come as indices of their sorted names."""


def bins(lower_edges):
    """One slice per bin of integers; a bin ends where the next begins, the last has no end.

    >>> [s.name for s in bins([0, 1, 2, 4])]
    ['0', '1', '2-3', '4 and more']
    """
    pairs = zip(lower_edges, [edge - 1 for edge in lower_edges[1:]] + [None], strict=True)
    return tuple(Slice(_bin_name(low, high), low, high) for low, high in pairs)


def _bin_name(low, high):
    if high is None:
        return f"{low:,} and more"
    return f"{low:,}" if low == high else f"{low:,}-{high:,}"


def bin_of(values_T, slices):
    """Index of the bin that holds each value."""
    edges = np.array([s.at_least for s in slices[1:]], dtype=values_T.dtype)
    return np.searchsorted(edges, values_T, side="right")


def train_count_bins(train_tokens):
    """0, 1, 2-3, then half-decades (4-9, 10-31, 32-99, 100-316, ...) up to the number of training tokens."""
    half_decades = [-int(-(10 ** (k / 2)) // 1) for k in range(1, 40)]
    return bins([0, 1, 2, *(edge for edge in half_decades if edge <= train_tokens)])


def distance_bins(context_len):
    """1, 2-3, 4-7, ...: doubling bins of the distances that fit into a context."""
    edges = [1 << k for k in range((context_len - 1).bit_length())]
    return tuple(Slice(_bin_name(low, 2 * low - 1), low, 2 * low - 1) for low in edges)


def everything(labels):  # noqa: ARG001
    """Every scored token."""
    return Family((Slice("all"),), ("ar_hit",), lambda ar_hit_T: np.zeros(len(ar_hit_T), np.int64))


def recall(labels):  # noqa: ARG001
    """AR hits (tokens that could be recalled from the context and hardly from training), and the others."""
    return Family((Slice("ar_hit"), Slice("other")), ("ar_hit",), lambda ar_hit_T: np.where(ar_hit_T, 0, 1))


def domain(labels):
    """Where the document comes from."""
    names = dictionary_values(labels.artifact.files("tokens-"), "domain")
    return Family(tuple(Slice(name) for name in names), ("domain",), lambda domain_T: domain_T)


def train_count(labels):
    """How often the n-gram that the token ends occurred in training, in half-decades."""
    slices = train_count_bins(labels.results["train_tokens"])
    return Family(slices, ("train_count",), lambda count_T: bin_of(count_T, slices))


def repeat_x_train_count(labels):
    """Training count, for n-grams repeated in the context and for others apart."""
    counts = train_count_bins(labels.results["train_tokens"])
    slices = tuple(
        Slice(f"{group}, {s.name}", s.at_least, s.at_most, group)
        for group in ("not repeated", "repeated")
        for s in counts
    )
    return Family(
        slices,
        ("distance", "train_count"),
        lambda distance_T, count_T: (distance_T > 0) * len(counts) + bin_of(count_T, counts),
    )


def distance(labels):
    """Tokens back from an AR hit to the latest earlier occurrence of its n-gram, in doubling bins."""
    slices = distance_bins(labels.config["context_len"])
    return Family(
        (*slices, Slice("not a hit")),
        ("ar_hit", "distance"),
        lambda ar_hit_T, distance_T: np.where(ar_hit_T, bin_of(distance_T, slices), len(slices)),
    )


def followers(labels):  # noqa: ARG001
    """AR hits whose prefix had one follower in the context so far (what to recall is certain), or several."""
    return Family(
        (Slice("unique"), Slice("ambiguous"), Slice("not a hit")),
        ("ar_hit", "followers"),
        lambda ar_hit_T, followers_T: np.where(ar_hit_T, np.where(followers_T > 1, 1, 0), 2),
    )


SLICES = {
    "all": everything,
    "recall": recall,
    "domain": domain,
    "train_count": train_count,
    "distance": distance,
    "followers": followers,
    "repeat_x_train_count": repeat_x_train_count,
}
