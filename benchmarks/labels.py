"""Finding repeats in contexts of 2048 tokens: recallgap against other ways, in one run, on one core.

    python benchmarks/labels.py [--tokens 20] [--text FILE.zst... --tokenizer FILE.json]

recallgap finds the latest and the first earlier occurrence and counts followers. "all three" marks the ways
that do the same; "latest" finds the distance to the latest occurrence only. All must agree in what they find.
"""

import argparse
import os

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
from counts import add_stream_options, seconds, streams

from recallgap.recall import repeats

CONTEXT_LEN = 2048
DICT_TOKENS = 100 * CONTEXT_LEN


def by_recallgap(ids_T, n):
    bounds_C1 = np.append(np.arange(0, len(ids_T), CONTEXT_LEN), len(ids_T))
    return repeats(ids_T, bounds_C1, order=n)


def by_dict(ids_T, n):
    """All three, with dictionaries of tuples."""
    distance, first_distance, followers = (np.zeros(len(ids_T), np.uint32) for _ in range(3))
    for start in range(0, len(ids_T), CONTEXT_LEN):
        ids = ids_T[start : start + CONTEXT_LEN].tolist()
        last, first, after = {}, {}, {}
        for i in range(n - 1, len(ids)):
            ngram = tuple(ids[i - n + 1 : i + 1])
            seen = after.setdefault(ngram[:-1], set())
            followers[start + i] = len(seen)
            if ngram in last:
                distance[start + i], first_distance[start + i] = i - last[ngram], i - first[ngram]
            else:
                first[ngram] = i
                seen.add(ngram[-1])
            last[ngram] = i
    return distance, first_distance, followers


def by_dict_of_ints(ids_T, n):
    """The latest only, with a dictionary of packed n-grams."""
    distance = np.zeros(len(ids_T), np.uint32)
    for start in range(0, len(ids_T), CONTEXT_LEN):
        keys, last = packed(ids_T[start : start + CONTEXT_LEN], n).tolist(), {}
        for i, key in enumerate(keys, start + n - 1):
            distance[i] = i - last.get(key, i)
            last[key] = i
    return (distance,)


def packed(ids, n):
    """n-grams along the last axis as int64."""
    ids = ids.astype(np.int64)
    keys = ids[..., : ids.shape[-1] - n + 1]
    for k in range(1, n):
        keys = keys << 16 | ids[..., k : ids.shape[-1] - n + 1 + k]
    return keys


def latest_from_order(keys_CG, order_CG, n):
    """Distances, given a stable order of the n-grams (G) of each context (C): equal neighbours repeat."""
    sorted_CG = np.take_along_axis(keys_CG, order_CG, axis=1)
    gap_CG = np.where(sorted_CG[:, 1:] == sorted_CG[:, :-1], np.diff(order_CG, axis=1), 0)
    distance_CM = np.zeros((len(keys_CG), CONTEXT_LEN), np.uint32)
    np.put_along_axis(distance_CM, order_CG[:, 1:] + n - 1, gap_CG, axis=1)
    return (distance_CM.ravel(),)


def by_numpy(ids_T, n):
    keys_CG = packed(ids_T.reshape(-1, CONTEXT_LEN), n)
    return latest_from_order(keys_CG, np.argsort(keys_CG, axis=1, kind="stable"), n)


def by_torch(ids_T, n):
    import torch

    keys_CG = packed(ids_T.reshape(-1, CONTEXT_LEN), n)
    order_CG = torch.sort(torch.from_numpy(keys_CG), dim=1, stable=True).indices.numpy()
    return latest_from_order(keys_CG, order_CG, n)


def main():
    import torch

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tokens", type=float, default=20, help="in millions")
    parser.add_argument("--repeats", type=int, default=5, help="the best of so many runs counts")
    add_stream_options(parser)
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    ways = {
        "recallgap (all three)": (by_recallgap, None),
        "numpy stable argsort (latest)": (by_numpy, None),
        "torch stable sort (latest)": (by_torch, None),
        "dict of ints (latest)": (by_dict_of_ints, DICT_TOKENS),
        "dict of tuples (all three)": (by_dict, DICT_TOKENS),
    }
    for name, ids_T in streams(arguments, int(arguments.tokens * 1e6) // CONTEXT_LEN * CONTEXT_LEN).items():
        ids_T = ids_T[: len(ids_T) // CONTEXT_LEN * CONTEXT_LEN]
        for n in (2, 3):
            expected = by_recallgap(ids_T, n)
            print(f"\n{name}, {len(ids_T):,} tokens, n = {n}, {(expected[0] > 0).mean():.1%} repeated")
            for way, (function, limit) in ways.items():
                taken, found = seconds(function, ids_T[:limit], n, repeats=arguments.repeats)
                for column, expected_T in zip(found, expected, strict=False):
                    assert np.array_equal(column, expected_T[:limit]), f"{way} finds otherwise"
                print(f"  {way:<32}{len(ids_T[:limit]) / taken / 1e6:8.2f} Mtok/CPU-s", flush=True)


if __name__ == "__main__":
    main()
