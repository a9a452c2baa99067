"""MQAR data: recallgap's generator against zoology's, in one run, on one core.

    python benchmarks/mqar.py --zoology PATH [--sequences 20000] [--peer-sequences 2000]

PATH: a checkout of github HazyResearch/zoology, or its file multiquery_ar.py. The lengths and pairs are those
of the paper's figure 2, with a vocabulary of 8192. Times are CPU time a sequence, the best of ROUNDS.

First table: speed with each kind of filler; "its bytes" is our preset, which repeats zoology's random streams
and gives the very bytes. Second: of random fillers, the share of sequences in which one of
them is a key of the sequence, and, with the answers written after their queries, in which some token that is
neither an answer nor continues from one to the next query in the order of the pairs repeats a bigram.
"""

import argparse
import os

os.environ["OMP_NUM_THREADS"] = "1"

import importlib.util
import math
import sys
import time
from pathlib import Path
from unittest import mock

import numpy as np
import torch  # noqa: F401  (before zoology's file is loaded, whose own imports are forgotten afterwards)

from recallgap.mqar import MqarConfig, generate
from recallgap.mqar.generate import with_answers
from recallgap.mqar.zoology_preset import generate_like_zoology
from recallgap.recall import repeats

ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": "4294967296", "MALLOC_TRIM_THRESHOLD_": "68719476736"}
"""Memory is kept between rounds: fresh pages from the system would be most of our time at N = 512."""
SIZES = ((64, 4), (128, 8), (256, 16), (512, 64))
ROUNDS = 3


def zoology_generator(path):
    """Its function `multiquery_ar`, loaded without the rest of the package."""
    path = Path(path)
    path = path / "zoology" / "data" / "multiquery_ar.py" if path.is_dir() else path
    spec = importlib.util.spec_from_file_location("multiquery_ar", path)
    module = importlib.util.module_from_spec(spec)
    config = mock.MagicMock(DataSegmentConfig=object)
    utils = mock.MagicMock(DataSegment=lambda inputs, labels, **_: (inputs.numpy(), labels.numpy()))
    names = {"zoology": mock.MagicMock(), "zoology.config": config}
    with mock.patch.dict(
        sys.modules, names | {"zoology.data": mock.MagicMock(), "zoology.data.utils": utils}
    ):
        spec.loader.exec_module(module)
    return module.multiquery_ar


def by_zoology(function, config, n, seed):
    return function(
        vocab_size=config.vocab_size,
        num_examples=n,
        input_seq_len=config.context_len,
        seed=seed,
        power_a=config.alpha,
        num_kv_pairs=config.n_pairs,
        random_non_queries=config.fillers == "random",
    )


def microseconds(make, n):
    best = math.inf
    for _ in range(ROUNDS):
        start = time.process_time()
        make(n)
        best = min(best, time.process_time() - start)
    return 1e6 * best / n


def is_filler(config, targets_BT):
    filler_BT = targets_BT < 0
    filler_BT[:, : 2 * config.n_pairs] = False
    return filler_BT


def key_collides(config, ids_BT, targets_BT):
    """Share of sequences in which a filler is one of the keys."""
    keys_BK1 = ids_BT[:, 0 : 2 * config.n_pairs : 2, None]
    filler_BT = is_filler(config, targets_BT)
    hit_B = [
        np.isin(row[mask], keys).any() for row, mask, keys in zip(ids_BT, filler_BT, keys_BK1, strict=True)
    ]
    return float(np.mean(hit_B))


def false_hits(_, ids_BT, targets_BT):
    """Share of sequences in which a token that is no answer, and no query after one, repeats a bigram."""
    B, T = ids_BT.shape
    repeated_BT = (
        repeats(with_answers(ids_BT, targets_BT).ravel(), np.arange(0, B * T + 1, T)).distance_T.reshape(B, T)
        > 0
    )
    query_BT = targets_BT >= 0
    expected_BT = np.zeros_like(query_BT)
    expected_BT[:, 1:] = query_BT[:, :-1]
    expected_BT[:, 2:] |= query_BT[:, 2:] & query_BT[:, :-2]
    return float((repeated_BT & ~expected_BT).any(axis=1).mean())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--zoology", required=True)
    parser.add_argument("--sequences", type=int, default=20_000)
    parser.add_argument("--peer-sequences", type=int, default=2_000)
    args = parser.parse_args()
    function, rng = zoology_generator(args.zoology), np.random.default_rng(0)
    print("CPU microseconds a sequence; ratio: zoology / recallgap")
    print(f"{'N':>4} {'D':>3} {'fillers':8} {'zoology':>9} {'recallgap':>9} {'ratio':>7} {'its bytes':>10}")
    for N, D in SIZES:
        for fillers in ("zero", "random"):
            config = MqarConfig(context_len=N, n_pairs=D, fillers=fillers)
            theirs = microseconds(lambda n, c=config: by_zoology(function, c, n, 0), args.peer_sequences)
            ours = microseconds(lambda n, c=config: generate(c, n, rng), args.sequences)
            replayed = microseconds(
                lambda n, c=config: generate_like_zoology(c, n, seed=0, torch_seed=0), args.peer_sequences
            )
            print(
                f"{N:4} {D:3} {fillers:8} {theirs:9.1f} {ours:9.1f} {theirs / ours:6.0f}x {replayed:10.1f}",
                flush=True,
            )
    print("\nrandom fillers: share of sequences with a key among them | with a bigram repeated by accident")
    print(f"{'N':>4} {'D':>3} {'zoology':>9} {'recallgap':>9} | {'zoology':>9} {'recallgap':>9}")
    for N, D in SIZES:
        config = MqarConfig(context_len=N, n_pairs=D, fillers="random")
        both = by_zoology(function, config, args.peer_sequences, 0), generate(config, args.sequences, rng)
        keys, bigrams = ([f"{share(config, *b):9.2%}" for b in both] for share in (key_collides, false_hits))
        print(f"{N:4} {D:3} {' '.join(keys)} | {' '.join(bigrams)}", flush=True)


if __name__ == "__main__":
    if not ALLOCATOR.keys() & os.environ.keys():
        os.environ.update(ALLOCATOR)
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    main()
