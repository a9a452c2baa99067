"""Per-document sums in every slice of synthetic tokens: recallgap against pandas and DuckDB, in one run.

    python benchmarks/compare.py [--tokens 10000000]

All read the same Parquet files (a label table, two columns of losses) and make the same sums: tokens and
losses by document and slice, for all seven families of slices. Peers that are not installed are left out.
"""

import argparse
import importlib.util
import resource
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from recallgap.recall import open_labels
from recallgap.slices import SLICES, compare, open_losses
from recallgap.slices.sums import scan
from recallgap.staging import stage

CONTEXT_LEN, ROWS_PER_FILE, NAMES = 2048, 4_000_000, ("base", "model")


def write_inputs(folder, n_tokens):
    """Labels and two losses: 7 % AR hits, log-normal documents, 22 domains."""
    random = np.random.default_rng(0)
    lengths = np.maximum(np.exp(random.normal(np.log(330), 1, n_tokens // 100)).astype(int), 1)
    bounds = np.minimum(np.cumsum(lengths), n_tokens)
    document = np.searchsorted(bounds, np.arange(n_tokens), side="right")
    repeated = random.random(n_tokens) < 0.2
    distance = np.where(repeated, np.exp(random.uniform(0, np.log(CONTEXT_LEN - 1), n_tokens)), 0)
    train_count = np.exp(np.minimum(random.gamma(4, 1.8, n_tokens), 22)).astype(np.uint64)
    columns = {
        "document": pa.array(document, pa.uint32()),
        "domain": pa.DictionaryArray.from_arrays(
            pa.array(document % 22, pa.int32()), [f"domain {k}" for k in range(22)]
        ),
        "distance": pa.array(distance.astype(np.uint32)),
        "followers": pa.array(np.where(repeated, random.integers(1, 5, n_tokens), 0), pa.uint32()),
        "train_count": pa.array(train_count),
        "ar_hit": pa.array(repeated & (train_count <= 1250)),
    }
    shared = {"policy": "packed", "context_len": CONTEXT_LEN}
    write(folder / "labels", "labels", "tokens", columns, shared, {"train_tokens": 10**10, "coverage": 1.0})
    for name in NAMES:
        loss_T = random.gamma(1.5, 2, n_tokens).astype(np.float32)
        loss_T[::CONTEXT_LEN] = np.nan
        config = shared | {"model": name, "window": None, "dtype": "float32", "prefix": "none"}
        results = {"n_scored": int((~np.isnan(loss_T)).sum())}
        write(
            folder / name, "losses", "losses", {"loss": pa.array(loss_T, from_pandas=True)}, config, results
        )


def write(path, kind, prefix, columns, config, results):
    table = pa.table(columns)
    with stage(path, kind=kind, config=config, inputs={"corpus": "synthetic"}) as staging:
        for number, start in enumerate(range(0, len(table), ROWS_PER_FILE)):
            with staging.write(f"{prefix}-{number:05d}.parquet") as half:
                rows = table.slice(start, ROWS_PER_FILE)
                pq.write_table(rows, half, compression="zstd", compression_level=1, row_group_size=1 << 17)
        staging.results = {"n_tokens": len(table), "tokens_sha256": "synthetic", **results}


def ours(folder):
    labels = open_labels(folder / "labels")
    losses = [open_losses(folder / name) for name in NAMES]
    families = {name: define(labels) for name, define in SLICES.items()}
    sums = scan(labels, losses, families, common=False).sums
    return sum(int((s.n_DK > 0).sum()) for s in sums.values()), float(sums["recall"].loss_MDK[1, :, 0].sum())


def whole_compare(folder):
    gap = compare(folder / "base", [folder / "model"], folder / "labels")
    hit = gap.slices("recall")["ar_hit"]
    return len(gap.record["families"]), hit["n"] * hit["models"][1]["loss"]["estimate"]


def borders(folder):
    counts, distances = (SLICES[name](open_labels(folder / "labels")) for name in ("train_count", "distance"))
    return [part.at_least for part in counts.slices], [part.at_least for part in distances.slices[:-1]]


def with_pandas(folder):
    import pandas as pd

    count_borders, distance_borders = borders(folder)
    table = pd.read_parquet(sorted((folder / "labels").glob("*.parquet")))
    for name in NAMES:
        table[name] = pd.read_parquet(sorted((folder / name).glob("*.parquet")))["loss"].astype(float)
    table = table.dropna()
    hit = table["ar_hit"]
    count = pd.Series(np.searchsorted(count_borders, table["train_count"], side="right"), table.index)
    distance = pd.Series(np.searchsorted(distance_borders, table["distance"], side="right"), table.index)
    keys = {
        "all": hit * 0,
        "recall": hit,
        "domain": table["domain"],
        "train_count": count,
        "distance": distance.where(hit, -1),
        "followers": (table["followers"] > 1).where(hit, -1),
        "repeat_x_train_count": count + 100 * (table["distance"] > 0),
    }
    groups = {
        k: table.groupby(["document", v.rename("s")], observed=True)[list(NAMES)] for k, v in keys.items()
    }
    sums = {k: g.agg(["sum", "count"]) for k, g in groups.items()}
    hits = sums["recall"].xs(True, level="s")
    return sum(map(len, sums.values())), float(hits["model", "sum"].sum())


def with_duckdb(folder):
    import duckdb

    count_borders, distance_borders = borders(folder)
    losses = " POSITIONAL JOIN ".join(
        f"(SELECT loss AS {n} FROM '{folder / n}/losses-*.parquet') AS t_{n}" for n in NAMES
    )
    count = (
        "CASE " + " ".join(f"WHEN train_count < {b} THEN {k}" for k, b in enumerate(count_borders)) + " END"
    )
    distance = (
        "CASE " + " ".join(f"WHEN distance < {b} THEN {k}" for k, b in enumerate(distance_borders)) + " END"
    )
    keys = {
        "a": "0",
        "r": "ar_hit",
        "d": "domain",
        "c": count,
        "t": f"CASE WHEN ar_hit THEN {distance} ELSE -1 END",
        "f": "CASE WHEN ar_hit THEN (followers > 1)::INT ELSE -1 END",
        "x": f"{count.replace(' END', ' ELSE 99 END')} + 100 * (distance > 0)::INT",
    }
    columns = ", ".join(f"{expression} AS {name}" for name, expression in keys.items())
    sets = ", ".join(f"(document, {name})" for name in keys)
    query = f"""
        CREATE TABLE sums AS SELECT document, {", ".join(keys)}, grouping_id({", ".join(keys)}) AS set_id,
            count(*) AS n, sum(base::DOUBLE) AS base, sum(model::DOUBLE) AS model
        FROM (SELECT document, base, model, {columns} FROM '{folder}/labels/tokens-*.parquet'
              POSITIONAL JOIN {losses}) WHERE base IS NOT NULL AND model IS NOT NULL
        GROUP BY GROUPING SETS ({sets})"""
    connection = duckdb.connect()
    connection.execute(query)
    cells = connection.execute("SELECT count(*) FROM sums").fetchone()[0]
    only_r = connection.execute("SELECT sum(model) FROM sums WHERE r AND set_id = 95").fetchone()[0]
    return cells, only_r


def measure(run, folder):
    start, cpu_start = time.perf_counter(), time.process_time()
    cells, hit_loss = run(folder)
    seconds, used = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF)
    return seconds, time.process_time() - cpu_start, used.ru_maxrss / 1e6, cells, hit_loss


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=10_000_000)
    n_tokens = parser.parse_args().tokens
    peers = {"recallgap sums": ours, "recallgap compare, all intervals": whole_compare}
    for package, peer in (("pandas", with_pandas), ("duckdb", with_duckdb)):
        if importlib.util.find_spec(package):
            peers[package] = peer
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_inputs(folder, n_tokens)
        print(f"{n_tokens:,} tokens, 2 models, 7 families; best of 3, each in a process of its own")
        print(
            f"{'':32}{'seconds':>9}{'CPU s':>8}{'M tokens/s':>12}{'GB':>7}{'cells':>12}{'loss on hits':>18}"
        )
        for peer, run in peers.items():
            runs = []
            for _ in range(3):
                with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
                    runs.append(pool.submit(measure, run, folder).result())
            seconds, cpu, gigabytes, cells, hit_loss = min(runs)
            rate = n_tokens / seconds / 1e6
            print(f"{peer:32}{seconds:9.2f}{cpu:8.2f}{rate:12.1f}{gigabytes:7.2f}{cells:12,}{hit_loss:18.6f}")


if __name__ == "__main__":
    main()
