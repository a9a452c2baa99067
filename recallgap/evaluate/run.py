"""corpus + checkpoint -> losses: one float32 a token, in corpus order, null where a token is not scored.

    losses-00000.parquet   one column, `loss`, in nats; as many rows as the shard has tokens

The windows of a shard run in batches, longest first; no batch reaches into another shard, so a run that was
killed and continued gives the same bytes as one that was not.
Legend: W windows; T tokens of a shard; a trailing 1 means one more entry (borders).
"""

import math
import os
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from recallgap.artifact import open_artifact
from recallgap.corpus.store import tokens_sha256
from recallgap.evaluate.checkpoint import quiet_transformers
from recallgap.evaluate.checks import check_finite, check_ids, check_lengths, check_tokenizers, prefix_ids
from recallgap.evaluate.config import EvaluateConfig
from recallgap.evaluate.files import find_checkpoint
from recallgap.evaluate.windows import batches, shard_bounds, window_bounds
from recallgap.progress import Progress
from recallgap.staging import stage, up_to_date

ROW_GROUP = 128 * 1024
"""Rows: small enough to read a document's losses without the rest of its shard."""


def evaluate(checkpoint, corpus, out, *, config=None, overwrite=False):
    """Write the loss of every token of `corpus` under `checkpoint` to folder `out`; returns the `Artifact`.

    checkpoint: a path or hub name, a `CheckpointFiles` or a loaded `Checkpoint`. config: an `EvaluateConfig`.
    Where `out` holds this very result already it is opened, and no weights are loaded. CheckpointError where
    model and corpus do not fit each other, or a loss is not a finite number.
    """
    from recallgap.evaluate.heads import choose_head
    from recallgap.evaluate.losses import evaluation_mode

    config = config or EvaluateConfig()
    if isinstance(checkpoint, str | os.PathLike):
        checkpoint = find_checkpoint(checkpoint)
    check_tokenizers(checkpoint, corpus)
    plan = _plan(checkpoint, corpus, config)
    if not overwrite and up_to_date(out, **plan):
        return open_artifact(out, "losses")
    checkpoint = checkpoint.load(dtype=config.dtype, device=config.device)
    bounds_W1 = window_bounds(corpus.document_bounds_N1, config)
    check_lengths(checkpoint, bounds_W1)
    with quiet_transformers(), evaluation_mode(checkpoint.model):
        head = choose_head(checkpoint.model)
        vocab_size = min(head.vocab_size, checkpoint.vocab_size)
        check_ids(checkpoint, vocab_size, corpus)
        prefix = prefix_ids(checkpoint, config.prefix, vocab_size)
        with stage(out, **plan, overwrite=overwrite) as staging:
            names = _write_shards(staging, checkpoint, head, corpus, bounds_W1, prefix, config)
            staging.results = {
                **_totals(staging.path / name for name in names),
                "tokens_sha256": tokens_sha256(corpus),
                "head": head.name,
                "model_class": type(checkpoint.model).__name__,
                "n_parameters": checkpoint.model.num_parameters(),
                "vocab_size": head.vocab_size,
                "prefix_ids": prefix.tolist(),
            }
    return open_artifact(out, "losses")


def _plan(checkpoint, corpus, config):
    return {
        "kind": "losses",
        "config": {**config.recorded(), "model": checkpoint.name, "revision": checkpoint.revision},
        "inputs": {
            "corpus": corpus.fingerprint,
            "checkpoint": checkpoint.fingerprint,
            "tokenizer": checkpoint.tokenizer_fingerprint,
        },
    }


def _write_shards(staging, checkpoint, head, corpus, bounds_W1, prefix, config):
    """Write the shards that are not there yet; returns the names of all."""
    borders = shard_bounds(bounds_W1, config.shard_tokens)
    shards = {
        f"losses-{number:05d}.parquet": bounds_W1[first : last + 1]
        for number, (first, last) in enumerate(pairwise(borders))
    }
    todo = {name: bounds for name, bounds in shards.items() if not staging.done(name)}
    with Progress("evaluate", total=int(sum(b[-1] - b[0] for b in todo.values()))) as progress:
        for name, shard_W1 in todo.items():
            loss_T = _shard_losses(checkpoint, head, corpus, shard_W1, prefix, config.batch_tokens, progress)
            with staging.write(name) as path:
                _write_losses(path, loss_T)
    return list(shards)


def _shard_losses(checkpoint, head, corpus, bounds_W1, prefix, batch_tokens, progress):
    """Losses of the tokens between the first and the last of `bounds_W1`, float32, NaN where not scored."""
    from recallgap.evaluate.losses import row_losses

    first = int(bounds_W1[0])
    ids_T = corpus.ids(first, int(bounds_W1[-1]))
    loss_T = np.full(len(ids_T), np.nan, dtype=np.float32)
    starts_W, lengths_W = bounds_W1[:-1] - first, np.diff(bounds_W1)
    progress.advance(int(np.sum(lengths_W + len(prefix) == 1)))  # windows that are in no batch
    for windows in batches(lengths_W + len(prefix), batch_tokens):
        spans = [slice(starts_W[w], starts_W[w] + lengths_W[w]) for w in windows]
        rows = [np.concatenate([prefix, ids_T[span]]) for span in spans]
        for span, loss in zip(spans, row_losses(checkpoint.model, head, rows), strict=True):
            loss_T[span] = loss[len(prefix) :]
            unscored = 1 - len(prefix)
            check_finite(checkpoint, corpus, loss_T[span][unscored:], first + span.start + unscored)
        progress.advance(int(lengths_W[windows].sum()))
    return loss_T


def _write_losses(path, loss_T):
    table = pa.table({"loss": pa.array(loss_T, mask=np.isnan(loss_T))})
    pq.write_table(
        table,
        path,
        compression="zstd",
        use_dictionary=False,
        use_byte_stream_split=True,
        row_group_size=ROW_GROUP,
    )


def _totals(paths):
    """Counts and sums over what is stored, float64, the division last."""
    n_tokens, n_scored, sums = 0, 0, []
    for path in paths:
        column = pq.read_table(path)["loss"]
        n_tokens += len(column)
        n_scored += len(column) - column.null_count
        sums.append(float(np.sum(column.drop_null().to_numpy(), dtype=np.float64)))
    loss_sum = math.fsum(sums)
    perplexity = float(np.exp(loss_sum / n_scored)) if n_scored else None
    return {"n_tokens": n_tokens, "n_scored": n_scored, "loss_sum": loss_sum, "perplexity": perplexity}
