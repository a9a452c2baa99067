"""Counting the n-grams of an evaluation set in training tokens: recallgap against other ways, in one run.

    python benchmarks/counts.py [--tokens 50] [--evaluation 10 0.2] [--text FILE.zst... --tokenizer FILE.json]

All count the same n-grams in the same tokens, on one core, and must agree. Without --text only a synthetic
stream is counted: Zipf's law for the token or, half the time, for the successor of the token before.
"""

import argparse
import collections
import importlib.util
import json
import os
import time

os.environ["POLARS_MAX_THREADS"] = "1"

import numpy as np
import pyarrow as pa
from numba import njit

from recallgap.counts.counting import PIECE
from recallgap.counts.keys import sort_distinct
from recallgap.counts.table import BORDER, HashTable, NGramTable

VOCAB, BLOCK, COUNTER_TOKENS = 50257, 1 << 24, 2_000_000


@njit
def _with_successors(rank_T, is_successor_T, vocab):
    ids_T = np.empty(len(rank_T), np.uint16)
    before = np.uint64(0)
    for t in range(len(rank_T)):
        x = np.uint64(rank_T[t])
        if is_successor_T[t]:
            x = (before * np.uint64(2654435761) + x) * np.uint64(0xBF58476D1CE4E5B9)
            x = (x ^ x >> np.uint64(29)) * np.uint64(0x94D049BB133111EB)
            x = (x ^ x >> np.uint64(32)) % np.uint64(vocab)
        ids_T[t], before = x, x
    return ids_T


def synthetic_stream(n_tokens):
    """Token ids uint16 with a long tail of rare bigrams."""
    random = np.random.default_rng(0)
    rank_T = np.exp(random.random(n_tokens) * np.log(VOCAB)).astype(np.int64) - 1
    return _with_successors(rank_T, random.random(n_tokens) < 0.5, VOCAB)


def real_stream(files, tokenizer, n_tokens):
    """Token ids of the texts of JSONL files, a separator (id 0) after each, in an order mixed by document."""
    from tokenizers import Tokenizer

    tokenizer, documents = Tokenizer.from_file(tokenizer), []
    for path in files:
        with pa.CompressedInputStream(path, "zstd") as file:
            texts = [json.loads(line)["text"] for line in file.read().decode().split("\n") if line]
        for start in range(0, len(texts), 500):
            batch = tokenizer.encode_batch_fast(texts[start : start + 500], add_special_tokens=False)
            documents += [np.array([*encoded.ids, 0], dtype=np.uint16) for encoded in batch]
    order = np.random.default_rng(0).permutation(len(documents))
    return np.concatenate([documents[i] for i in order])[:n_tokens]


def streams(arguments, n_tokens):
    """{name: token ids}."""
    found = {"synthetic": synthetic_stream(n_tokens)}
    if arguments.text:
        found["real"] = real_stream(arguments.text, arguments.tokenizer, n_tokens)
    return found


def packed_keys(ids_T, n, start, stop):
    """n-grams that start in [start, stop), packed into as few bits as they need."""
    dtype = np.uint32 if n == 2 else np.uint64
    keys = ids_T[start:stop].astype(dtype)
    for k in range(1, n):
        keys = keys << dtype(16) | ids_T[start + k : stop + k]
    return keys


def blocks(ids_T, n, size=BLOCK):
    last = len(ids_T) - n + 1
    return (packed_keys(ids_T, n, a, min(a + size, last)) for a in range(0, last, size))


@njit
def _join(sorted_B, keys_K, counts_K):
    i = 0
    for k in range(len(keys_K)):
        while i < len(sorted_B) and sorted_B[i] < keys_K[k]:
            i += 1
        while i < len(sorted_B) and sorted_B[i] == keys_K[k]:
            i += 1
            counts_K[k] += 1


def by_sorting(ids_T, n, keys_K):
    counts_K = np.zeros(len(keys_K), np.uint64)
    for keys_B in blocks(ids_T, n):
        keys_B.sort()
        _join(keys_B, keys_K, counts_K)
    return counts_K


def by_unique(ids_T, n, keys_K):
    counts_K = np.zeros(len(keys_K), np.uint64)
    for keys_B in blocks(ids_T, n):
        found, counts = np.unique(keys_B, return_counts=True)
        at = np.minimum(np.searchsorted(found, keys_K), len(found) - 1)
        counts_K += np.where(found[at] == keys_K, counts[at], 0).astype(np.uint64)
    return counts_K


def by_counter(ids_T, n, keys_K):
    counter = collections.Counter()
    for keys_B in blocks(ids_T, n):
        counter.update(keys_B.tolist())
    return np.array([counter[key] for key in keys_K.tolist()], dtype=np.uint64)


def by_duckdb(ids_T, n, keys_K):
    import duckdb

    connection = duckdb.connect(config={"threads": 1})
    train = pa.table({"key": np.concatenate(list(blocks(ids_T, n)))})  # noqa: F841, read by the query
    wanted = pa.table({"key": keys_K, "row": np.arange(len(keys_K))})  # noqa: F841
    query = (
        "select coalesce(n, 0)::ubigint as n from wanted left join "
        "(select key, count(*) as n from train group by key) using (key) order by row"
    )
    return connection.execute(query).fetchnumpy()["n"]


def by_polars(ids_T, n, keys_K):
    import polars

    train = polars.DataFrame({"key": np.concatenate(list(blocks(ids_T, n)))})
    counts = train.group_by("key").len()
    wanted = polars.DataFrame({"key": keys_K}).join(counts, on="key", how="left", maintain_order="left")
    return wanted["len"].fill_null(0).to_numpy().astype(np.uint64)


def ngram_table(ids_T, orders):
    """The library's table of the n-grams of an evaluation set, and the packed keys of each order."""
    prefix_T, keys, packed = ids_T.astype(np.uint64), {}, {}
    for n in range(2, max(orders) + 1):
        keys_T = prefix_T[: len(ids_T) - n + 1] << np.uint64(32) | ids_T[n - 1 :]
        keys[n] = sort_distinct(keys_T.copy())
        table = HashTable(keys[n], np.arange(len(keys[n]), dtype=np.uint64))
        prefix_T = table.slots_S2[table.find(keys_T), 1]
        packed[n] = sort_distinct(packed_keys(ids_T, n, 0, len(ids_T) - n + 1))
    return NGramTable(keys), packed


def by_recallgap(ids_T, table):
    counter, ahead = table.counter(), table.highest - 1
    for start in range(0, len(ids_T), PIECE):
        stop = min(start + PIECE, len(ids_T))
        tokens = np.full(stop - start + ahead, BORDER)
        here = ids_T[start : stop + ahead]
        assert here.max() < VOCAB + 100
        tokens[: len(here)] = here
        table.add(counter, tokens, stop - start)
    return counter


def seconds(function, *arguments, repeats):
    """(best processor time, result)."""
    times = []
    for _ in range(repeats):
        started = time.process_time()
        result = function(*arguments)
        times.append(time.process_time() - started)
    return min(times), result


def measure(name, ids_T, n_evaluation, repeats):
    evaluation_T, train_T = ids_T[-n_evaluation:], ids_T[:-n_evaluation]
    for orders in ((2,), (3,), (2, 3)):
        table, packed = ngram_table(evaluation_T, orders)
        by_recallgap(train_T[:10_000], table)
        taken, counter = seconds(by_recallgap, train_T, table, repeats=repeats)
        n_keys = " + ".join(f"{len(packed[n]):,}" for n in orders)
        what = f"{name}, n = {' and '.join(map(str, orders))} ({n_keys} distinct)"
        print(f"\n{what}\n  {'recallgap':<28}{len(train_T) / taken / 1e6:8.1f} Mtok/CPU-s")
        if len(orders) == 1:
            compare(train_T, orders[0], packed[orders[0]], table.counted(counter, orders[0]), repeats)


def compare(train_T, n, keys_K, expected_K, repeats):
    ways = {"sort + join": by_sorting, "numpy.unique": by_unique, "collections.Counter": by_counter}
    ways |= {"DuckDB, 1 thread": by_duckdb, "Polars, 1 thread": by_polars}
    for way, function in ways.items():
        package = {by_duckdb: "duckdb", by_polars: "polars"}.get(function)
        if package and importlib.util.find_spec(package) is None:
            continue
        tokens = train_T[:COUNTER_TOKENS] if function is by_counter else train_T
        function(tokens[:1000], n, keys_K[:10])
        again = repeats if function is by_sorting else 1
        taken, counts_K = seconds(function, tokens, n, keys_K, repeats=again)
        assert function is by_counter or np.array_equal(counts_K, expected_K), f"{way} counts otherwise"
        print(f"  {way:<28}{len(tokens) / taken / 1e6:8.1f} Mtok/CPU-s", flush=True)


def add_stream_options(parser):
    parser.add_argument("--text", nargs="*", help="JSONL files (.zst) for a real stream")
    parser.add_argument("--tokenizer", help="tokenizer.json for them")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tokens", type=float, default=50, help="training tokens, in millions")
    parser.add_argument("--evaluation", type=float, nargs="*", default=[10, 0.2], help="evaluation tokens")
    parser.add_argument("--repeats", type=int, default=3, help="the best of so many counts")
    add_stream_options(parser)
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    sizes = [int(millions * 1e6) for millions in arguments.evaluation]
    for name, ids_T in streams(arguments, int(arguments.tokens * 1e6) + max(sizes)).items():
        for size in sizes:
            held = len(ids_T) - max(sizes)
            measure(
                f"{name}, {held:,} tokens",
                np.concatenate([ids_T[:held], ids_T[-size:]]),
                size,
                arguments.repeats,
            )


if __name__ == "__main__":
    main()
