"""Labelling every token of a corpus: what it repeats of its context, and how rare that is in training.

Works shard by shard. A shard is a run of whole contexts, so memory holds one shard; finished ones are kept
when a run is interrupted.

Legend: T tokens of a shard, C contexts of a shard, N documents; a trailing 1 means one more entry (borders).
"""

import numpy as np
import pyarrow as pa

from recallgap.corpus.store import tokens_sha256
from recallgap.counts.config import check_fit
from recallgap.errors import CountsError
from recallgap.progress import Progress, note
from recallgap.recall.config import LabelConfig
from recallgap.recall.repeats import ar_hits, repeats
from recallgap.recall.store import count_column, count_true, open_labels, shard_name, write_table
from recallgap.staging import stage, up_to_date

SHARD_TOKENS = 1 << 21


def label(corpus, counts, out, *, config=None, overwrite=False):
    """Label the tokens of `corpus` with its training `counts`; writes folder `out`, returns `Labels`.

    counts: a `Counts` with the orders asked for, made for this corpus or for a larger one that holds its
    n-grams. config: a `LabelConfig`. Where `out` holds this very result already it is opened. CountsError
    where the counts do not fit the corpus.
    """
    config = config or LabelConfig()
    _check_counts(f"labelling {corpus.path} with counts {counts.path}", corpus, counts, config)
    threshold = config.threshold(counts.n_tokens)
    plan = {
        "kind": "labels",
        "config": {
            "order": config.order,
            **config.contexts.to_dict(),
            "max_train_count": threshold,
            "rate_per_million": config.rate_per_million,
            "separators": config.separators,
            "count_orders": sorted(config.count_orders),
        },
        "inputs": {"corpus": corpus.fingerprint, "counts": counts.fingerprint},
    }
    if not overwrite and up_to_date(out, **plan):
        return open_labels(out)
    bounds_C1 = config.contexts.bounds(corpus.document_bounds_N1)
    shards = _shards(bounds_C1)
    with (
        stage(out, **plan, overwrite=overwrite) as staging,
        Progress("label", total=corpus.n_tokens) as progress,
    ):
        for number, (first, last) in enumerate(shards):
            if not staging.done(shard_name(number)):
                columns = label_contexts(corpus, counts, config, bounds_C1[first : last + 1], first)
                with staging.write(shard_name(number)) as path:
                    write_table(path, columns)
            progress.advance(int(bounds_C1[last] - bounds_C1[first]))
        names = [shard_name(number) for number in range(len(shards))]
        staging.results = {
            "n_tokens": corpus.n_tokens,
            "n_contexts": len(bounds_C1) - 1,
            **count_true(
                [staging.path / name for name in names], {"distance": "n_repeated", "ar_hit": "n_ar_hits"}
            ),
            "tokens_sha256": tokens_sha256(corpus),
            "train_tokens": counts.n_tokens,
            "coverage": counts.coverage,
        }
    return open_labels(out)


def _check_counts(doing, corpus, counts, config):
    check_fit(doing, corpus, counts)
    missing = {config.order, *config.count_orders} - set(counts.orders)
    if missing:
        held = ", ".join(map(str, counts.orders))
        raise CountsError(
            f"{doing}: they hold orders {held}, but {sorted(missing)} is needed too; count with --orders "
            f"{','.join(map(str, sorted({config.order, *config.count_orders})))}"
        )
    if counts.coverage < 1:
        note(
            f"{doing}: only {counts.coverage:.1%} of the training tokens were counted, so training counts "
            "are too low and there are more AR hits; merge the counts of all tasks first"
        )


def _shards(bounds_C1):
    """[(first context, one after the last)] of each shard; at least one shard, if with no context."""
    starts = bounds_C1[:-1]
    cuts = np.searchsorted(starts, np.arange(0, bounds_C1[-1], SHARD_TOKENS))
    cuts = np.unique(np.append(cuts, len(starts)))
    return list(zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True)) or [(0, 0)]


def label_contexts(corpus, counts, config, bounds_C1, first_context):
    """The token table of consecutive contexts with these borders: {name of column: array}."""
    start, stop = int(bounds_C1[0]), int(bounds_C1[-1])
    ids_T, lengths_C = corpus.ids(start, stop), np.diff(bounds_C1)
    document_T = _documents(corpus, start, stop)
    position_T = np.arange(start, stop) - np.repeat(bounds_C1[:-1], lengths_C)
    found = repeats(
        ids_T,
        bounds_C1 - start,
        order=config.order,
        separator_id=corpus.separator_id,
        separators=config.separators,
    )
    train_count_T = _train_counts(counts, ids_T, position_T, config.order)
    columns = {
        "document": document_T.astype(np.uint32),
        "context": np.repeat(np.arange(len(lengths_C)) + first_context, lengths_C).astype(np.uint32),
        "position": position_T.astype(np.uint32),
        "token": ids_T,
        "domain": _domains(corpus, document_T),
        "distance": found.distance_T,
        "first_distance": found.first_distance_T,
        "followers": found.followers_T,
        "train_count": train_count_T,
    }
    for order in sorted(config.count_orders):
        columns[count_column(order)] = _train_counts(counts, ids_T, position_T, order)
    threshold = config.threshold(counts.n_tokens)
    return {**columns, "ar_hit": ar_hits(found.distance_T, train_count_T, threshold)}


def _documents(corpus, start, stop):
    """Number of the document of each token in [start, stop) of the stream."""
    bounds_N1 = corpus.document_bounds_N1
    first, last = np.searchsorted(bounds_N1, [start, stop], side="right") - [1, 0]
    first = max(first, 0)
    lengths = np.diff(np.clip(bounds_N1[first : last + 1], start, stop))
    return np.repeat(np.arange(first, first + len(lengths)), lengths)


def _domains(corpus, document_T):
    domains = corpus.documents["domain"].combine_chunks().dictionary_encode()
    codes_T = domains.indices.to_numpy()[document_T]
    return pa.DictionaryArray.from_arrays(codes_T, domains.dictionary)


def _train_counts(counts, ids_T, position_T, order):
    """Training count of the n-gram that each token ends, uint64; 0 where it starts before the context."""
    train_count_T = np.zeros(len(ids_T), np.uint64)
    ends = np.flatnonzero(position_T >= order - 1)
    if ends.size:
        ngrams_Tn = np.lib.stride_tricks.sliding_window_view(ids_T, order)
        train_count_T[ends] = counts.lookup(ngrams_Tn[ends - order + 1], order)
    return train_count_T
