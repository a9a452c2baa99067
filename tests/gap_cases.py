"""Small label and losses artifacts made from arrays, for the tests of slices and report."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from recallgap.staging import stage

LABEL_TYPES = {
    "document": pa.uint32(),
    "context": pa.uint32(),
    "position": pa.uint32(),
    "token": pa.uint16(),
    "domain": pa.dictionary(pa.int32(), pa.string()),
    "distance": pa.uint32(),
    "first_distance": pa.uint32(),
    "followers": pa.uint32(),
    "train_count": pa.uint64(),
    "ar_hit": pa.bool_(),
}
CONTEXT_LEN, MAX_TRAIN_COUNT, TRAIN_TOKENS = 64, 50, 1_000_000


def random_columns(seed, lengths, domains=("code", "prose")):
    """Label columns of documents of these lengths, with AR hits as the definition makes them."""
    random, n = np.random.default_rng(seed), sum(lengths)
    repeated = random.random(n) < 0.4
    distance = np.where(repeated, np.exp(random.uniform(0, np.log(CONTEXT_LEN - 1), n)).astype(int), 0)
    train_count = np.exp(random.uniform(-1, 9, n)).astype(int)
    document = np.repeat(np.arange(len(lengths)), lengths)
    return {
        "document": document,
        "context": np.arange(n) // CONTEXT_LEN,
        "position": np.arange(n) % CONTEXT_LEN,
        "token": random.integers(0, 100, n),
        "domain": np.array(domains, dtype=object)[document % len(domains)],
        "distance": distance,
        "first_distance": distance,
        "followers": np.where(repeated, random.integers(1, 4, n), 0),
        "train_count": train_count,
        "ar_hit": repeated & (train_count <= MAX_TRAIN_COUNT),
    }


def random_losses(seed, columns, *, hit_loss=1.0, other_loss=3.0):
    """Losses with an effect of the document; the first token of each context is not scored (NaN)."""
    random, document = np.random.default_rng(seed), columns["document"]
    effect = random.normal(0, 0.3, document.max(initial=0) + 1)[document]
    mean = np.where(columns["ar_hit"], hit_loss, other_loss) + effect
    loss_T = np.abs(mean + random.normal(0, 0.5, len(document))).astype(np.float32)
    return np.where(columns["position"] == 0, np.float32(np.nan), loss_T)


def write_labels(path, columns, *, corpus="corpus-a", config=None, results=None, rows_per_file=1000):
    """A labels artifact; rows_per_file cuts it into files that end anywhere."""
    names = ("order", "policy", "context_len", "max_train_count", "rate_per_million", "separators")
    default = dict(zip(names, (2, "packed", CONTEXT_LEN, MAX_TRAIN_COUNT, None, "drop"), strict=True))
    config = default | {"count_orders": [2]} | (config or {})
    inputs = {"corpus": corpus, "counts": "counts-a"}
    with stage(path, kind="labels", config=config, inputs=inputs) as staging:
        arrays = [pa.array(columns[name], type_) for name, type_ in LABEL_TYPES.items()]
        _write_rows(staging, "tokens", pa.table(arrays, names=list(LABEL_TYPES)), rows_per_file)
        staging.results = {
            "n_tokens": len(columns["document"]),
            "n_documents": int(columns["document"].max(initial=-1)) + 1,
            "n_ar_hits": int(columns["ar_hit"].sum()),
            "tokens_sha256": "tokens-a",
            "train_tokens": TRAIN_TOKENS,
            "coverage": 1.0,
        } | (results or {})
    return path


def write_losses(path, loss_T, *, corpus="corpus-a", config=None, results=None, rows_per_file=777):
    """A losses artifact; NaN is written as null."""
    names = ("model", "policy", "context_len", "window", "dtype", "prefix")
    default = dict(zip(names, (path.name, "packed", CONTEXT_LEN, None, "float32", "none"), strict=True))
    inputs = {"corpus": corpus, "checkpoint": f"checkpoint-{path.name}", "tokenizer": None}
    with stage(path, kind="losses", config=default | (config or {}), inputs=inputs) as staging:
        table = pa.table({"loss": pa.array(loss_T, pa.float32(), from_pandas=True)})
        _write_rows(staging, "losses", table, rows_per_file)
        scored_T = ~np.isnan(loss_T)
        staging.results = {
            "n_tokens": len(loss_T),
            "n_scored": int(scored_T.sum()),
            "loss_sum": float(loss_T[scored_T].astype(np.float64).sum()),
            "tokens_sha256": "tokens-a",
        } | (results or {})
    return path


def _write_rows(staging, prefix, table, rows_per_file):
    for number, start in enumerate(range(0, max(len(table), 1), rows_per_file)):
        with staging.write(f"{prefix}-{number:05d}.parquet") as half:
            pq.write_table(table.slice(start, rows_per_file), half, row_group_size=300)


def write_case(folder, *, seed=0, lengths=(40, 300, 7, 650, 90) * 8, domains=("code", "prose"), **models):
    """Labels and losses (name=hit loss, other loss): (columns, labels path, [losses paths])."""
    columns = random_columns(seed, lengths, domains)
    labels = write_labels(folder / "labels", columns)
    paths = []
    for number, (name, (hit, other)) in enumerate(models.items()):
        loss_T = random_losses(seed + number + 1, columns, hit_loss=hit, other_loss=other)
        paths.append(write_losses(folder / name, loss_T))
    return columns, labels, paths
