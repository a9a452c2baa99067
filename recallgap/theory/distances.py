"""How many interaction distances real contexts need: what Theorem H.38's t would be on real text.

A token that repeats a bigram of its context can be recalled from `distance` tokens back. Kernels made from
the input (Zoology, arXiv 2312.04927, section H.8.2) read at t distances, the same for all tokens of a
context. From a token table (`recallgap label`): how many distinct distances the AR hits of a context have,
and all its repeated bigrams, and how many of these tokens stand at one of the t commonest distances of their
context: the most that any choice of t lags reaches. The distance is that to the latest earlier occurrence.
Legend: T tokens, U pairs of a context and a distance that occur, C contexts.
"""

import numpy as np
import pyarrow.parquet as pq

SHIFTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)
COLUMNS = ("context", "distance", "ar_hit")


def distances_needed(labels, *, shifts=SHIFTS, quantiles=QUANTILES):
    """Two rows, of AR hits and of all repeated bigrams, as dicts:

        tokens      "AR hits" or "repeated bigrams"
        contexts    number of contexts, those without such a token included
        n           number of such tokens
        mean        distinct distances of a context, on average
        quantiles   {q: of the contexts, the share q needs at most so many distances}; 1.0: the largest
        covered     {t: share of the tokens at one of the t commonest distances of their context}

    labels: a `Labels`. Memory holds one shard, which is whole contexts.
    """
    needed, reached = (
        {name: [] for name in _MASKS},
        {name: np.zeros(len(shifts), np.int64) for name in _MASKS},
    )
    totals = dict.fromkeys(_MASKS, 0)
    for path in labels.artifact.files("tokens-"):
        table = pq.read_table(path, columns=list(COLUMNS))
        context_T, distance_T, hit_T = (table[name].to_numpy() for name in COLUMNS)
        contexts = np.unique(context_T)
        for name, mask in _MASKS.items():
            chosen_T = mask(distance_T, hit_T)
            counts_C, ranked_U, count_U = _ranked(context_T[chosen_T], distance_T[chosen_T], contexts)
            needed[name].append(counts_C)
            reached[name] += [int(count_U[ranked_U < t].sum()) for t in shifts]
            totals[name] += int(chosen_T.sum())
    return [
        _row(
            name,
            np.concatenate([*needed[name], np.zeros(0, np.int64)]),
            totals[name],
            reached[name],
            shifts,
            quantiles,
        )
        for name in _MASKS
    ]


_MASKS = {
    "AR hits": lambda distance_T, hit_T: hit_T,  # noqa: ARG005
    "repeated bigrams": lambda distance_T, hit_T: distance_T > 0,  # noqa: ARG005
}


def _ranked(context_T, distance_T, contexts):
    """Distinct distances of each context (C,); of each (context, distance) that occurs its rank in the
    context, the commonest 0, and how many tokens have it, (U,)."""
    pair_U, count_U = np.unique(context_T.astype(np.uint64) << 32 | distance_T, return_counts=True)
    place_U = np.searchsorted(contexts, pair_U >> np.uint64(32))
    counts_C = np.bincount(place_U, minlength=len(contexts))
    order_U = np.lexsort((-count_U, place_U))
    first_C = np.cumsum(counts_C) - counts_C
    return counts_C, np.arange(len(order_U)) - np.repeat(first_C, counts_C), count_U[order_U]


def _row(name, needed_C, total, reached, shifts, quantiles):
    sorted_C = np.sort(needed_C)
    places = [max(int(np.ceil(q * len(sorted_C))) - 1, 0) for q in quantiles]
    return {
        "tokens": name,
        "contexts": len(needed_C),
        "n": total,
        "mean": float(needed_C.mean()) if len(needed_C) else 0.0,
        "quantiles": {
            q: int(sorted_C[place]) if len(sorted_C) else 0
            for q, place in zip(quantiles, places, strict=True)
        },
        "covered": {t: int(x) / total if total else 1.0 for t, x in zip(shifts, reached, strict=True)},
    }
