"""Counting, in training corpora of any size, the n-grams of an evaluation corpus.

Memory holds the evaluation corpus' n-grams once for every core, and pieces of the training corpus. All cores
share each block. Every CHECKPOINT_SECONDS the sums so far are kept; an interrupted run continues from them.

Legend: K keys.
"""

import os
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from recallgap.corpus.store import Corpus
from recallgap.counts.config import CountConfig, check_fit, check_orders
from recallgap.counts.keys import distinct_ngrams
from recallgap.counts.plan import block_span, counts_plan, planned_blocks, planned_results, with_counts
from recallgap.counts.store import append_array, open_counts, write_counts
from recallgap.counts.table import NGramTable
from recallgap.counts.tokens import marked_tokens
from recallgap.errors import ConfigError
from recallgap.progress import Progress
from recallgap.staging import stage, up_to_date

CHECKPOINT_SECONDS = 60
PIECE = 1 << 20
"""Tokens that a core reads at a time."""
SUMS = "sums.partial"
"""What an interrupted run has: the number of blocks done, then the counts of each order so far."""


def count_ngrams(train, out, *, for_corpus, orders=(2,), config=None, overwrite=False):
    """Count in training corpora the distinct n-grams of `for_corpus`; writes folder `out`, returns `Counts`.

    train: a `Corpus` or several, whose counts are added up. orders: all n that are counted, in one pass.
    Exact for any n and vocabulary. Where `out` holds this very result already it is opened. CountsError where
    the tokenizers differ, CorpusError where an id is beyond the vocabulary.
    """
    config = config or CountConfig()
    corpora = [train] if isinstance(train, Corpus) else list(train)
    orders = check_orders(orders)
    _check_corpora(f"counting n-grams for {out}", corpora, for_corpus)
    blocks = planned_blocks(corpora, config)
    plan = counts_plan(
        {corpus.fingerprint: numbers for corpus, numbers in blocks},
        orders=orders,
        across_documents=config.across_documents,
        block_tokens=config.block_tokens,
        vocab_size=for_corpus.vocab_size,
        evaluation=for_corpus.fingerprint,
        tokenizer=for_corpus.tokenizer_fingerprint,
    )
    if not overwrite and up_to_date(out, **plan):
        return open_counts(out)
    with stage(out, **plan, overwrite=overwrite) as staging:
        keys = distinct_ngrams(for_corpus, orders)
        counts = _count(staging, keys, blocks, orders, config)
        write_counts(staging, keys, counts)
        (staging.path / SUMS).unlink(missing_ok=True)
        staging.results = with_counts(planned_results(blocks, orders, config), counts)
    return open_counts(out)


def _check_corpora(doing, corpora, for_corpus):
    if not corpora:
        raise ConfigError(f"{doing}: no training corpus was given, but at least one is needed")
    seen = {}
    for corpus in corpora:
        check_fit(doing, corpus, for_corpus)
        if corpus.fingerprint in seen:
            earlier = seen[corpus.fingerprint]
            raise ConfigError(
                f"{doing}: {earlier} and {corpus.path} are the same training corpus; give it once"
            )
        seen[corpus.fingerprint] = corpus.path


def _count(staging, keys, blocks, orders, config):
    """{order: uint64 count of each key} over all planned blocks, continuing what an interrupted run kept."""
    table = NGramTable(keys)
    n_done, kept = _read_sums(staging, keys, orders)
    todo = [(corpus, number) for corpus, numbers in blocks for number in numbers][n_done:]
    spans = [block_span(corpus, number, config.block_tokens) for corpus, number in todo]
    total = sum(stop - start for start, stop in spans)
    n_counters = min(_n_cores(), max(-(-total // PIECE), 1))
    counters = [table.counter() for _ in range(n_counters)]
    last_kept = time.monotonic()

    def sums():
        return {n: kept[n] + sum(table.counted(counter, n) for counter in counters) for n in orders}

    with Progress("count", total=total) as progress, ThreadPoolExecutor(n_counters) as pool:
        for (corpus, _), (start, stop) in zip(todo, spans, strict=True):
            _count_block(pool, table, counters, corpus, start, stop, config.across_documents)
            n_done += 1
            progress.advance(stop - start)
            if time.monotonic() - last_kept >= CHECKPOINT_SECONDS:
                _keep_sums(staging, n_done, sums())
                last_kept = time.monotonic()
    return sums()


def _n_cores():
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def _count_block(pool, table, counters, corpus, start, stop, across_documents):
    """Count the n-grams that start in [start, stop), an equal share in each counter."""
    bounds = np.linspace(start, stop, len(counters) + 1).astype(np.int64)

    def count_share(counter, first, last):
        for piece in range(first, last, PIECE):
            end = min(piece + PIECE, last)
            tokens = marked_tokens(corpus, piece, end, table.highest, across_documents=across_documents)
            table.add(counter, tokens, end - piece)

    list(pool.map(count_share, counters, bounds[:-1].tolist(), bounds[1:].tolist()))


def _keep_sums(staging, n_done, sums):
    with staging.write(SUMS) as path, open(path, "wb") as file:
        append_array(file, np.array([n_done], dtype=np.uint64))
        for _, counts_K in sorted(sums.items()):
            append_array(file, counts_K)


def _read_sums(staging, keys, orders):
    """(number of blocks done, {order: counts so far}) of an interrupted run, zeros where there was none."""
    if not staging.done(SUMS):
        return 0, {order: np.zeros(len(keys[order]), np.uint64) for order in orders}
    with open(staging.path / SUMS, "rb") as file:
        n_done = int(np.lib.format.read_array(file)[0])
        return n_done, {order: np.lib.format.read_array(file) for order in orders}
