"""What a counts artifact covers: blocks of training corpora. What is known of them without counting.

A training corpus is counted block by block. Block numbers do not depend on how the work is shared out, so a
whole run and the merged results of its tasks are the same artifact, byte for byte.
"""

import numpy as np

from recallgap.counts.tokens import n_ngrams


def planned_blocks(corpora, config):
    """[(corpus, numbers of its blocks)] that are counted: all of them, or those of one task."""
    first, step = config.task or (0, 1)
    blocks, passed = [], 0
    for corpus in corpora:
        here = range(-(-corpus.n_tokens // config.block_tokens))
        blocks.append((corpus, [number for number in here if (passed + number) % step == first]))
        passed += len(here)
    return blocks


def block_span(corpus, number, block_tokens):
    """(start, stop) of a block in the stream of its corpus."""
    start = number * block_tokens
    return start, min(start + block_tokens, corpus.n_tokens)


def counts_plan(blocks, *, orders, across_documents, block_tokens, vocab_size, evaluation, tokenizer):
    """Kind, config and inputs of a counts artifact. blocks: {fingerprint of a training corpus: numbers}."""
    config = {
        "orders": list(orders),
        "across_documents": across_documents,
        "block_tokens": block_tokens,
        "vocab_size": vocab_size,
        "blocks": {train: ranges_text(numbers) for train, numbers in blocks.items()},
    }
    inputs = {"evaluation": evaluation, "train": sorted(blocks), "tokenizer": tokenizer}
    return {"kind": "counts", "config": config, "inputs": inputs}


def planned_results(blocks, orders, config):
    """What the results of counting these blocks hold before anything is counted."""
    trains = {}
    in_stream, counted = dict.fromkeys(orders, 0), dict.fromkeys(orders, 0)
    for corpus, numbers in blocks:
        spans = [block_span(corpus, number, config.block_tokens) for number in numbers]
        n_counted = sum(stop - start for start, stop in spans)
        trains[corpus.fingerprint] = {"n_tokens": corpus.n_tokens, "n_counted": n_counted}
        for order in orders:
            for span in spans:
                here = n_ngrams(corpus, *span, order, across_documents=config.across_documents)
                in_stream[order] += here[0]
                counted[order] += here[1]
    totals = {
        str(order): {"n_ngrams": counted[order], "n_skipped_at_borders": in_stream[order] - counted[order]}
        for order in orders
    }
    return {"train": trains, "orders": totals}


def with_counts(planned, counts):
    """`planned_results` completed by what was counted; counts: {order: uint64 count of each key}."""
    totals, above = {}, None
    for order, counts_K in sorted(counts.items()):
        planned_order = planned["orders"][str(order)]
        n_found = int(counts_K.sum(dtype=np.uint64))
        assert n_found <= planned_order["n_ngrams"], "more n-grams were found than there are"
        assert above is None or n_found <= above, "an n-gram was found more often than its prefix"
        above = n_found
        totals[str(order)] = {
            **planned_order,
            "n_found": n_found,
            "n_keys": len(counts_K),
            "n_keys_found": int(np.count_nonzero(counts_K)),
        }
    counted = sum(train["n_counted"] for train in planned["train"].values())
    of_all = sum(train["n_tokens"] for train in planned["train"].values())
    coverage = counted / of_all if of_all else 1.0
    return {"train": planned["train"], "train_tokens": counted, "coverage": coverage, "orders": totals}


def ranges_text(numbers):
    """Numbers as text; equal sets give equal texts.

    >>> ranges_text([7, 0, 1, 2]), ranges_text([])
    ('0-2,7', '')
    """
    ranges = []
    for number in sorted(numbers):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges)


def numbers_of(text):
    """The set of numbers of a `ranges_text`.

    >>> sorted(numbers_of("0-2,7"))
    [0, 1, 2, 7]
    """
    numbers = set()
    for part in filter(None, text.split(",")):
        low, _, high = part.partition("-")
        numbers.update(range(int(low), int(high or low) + 1))
    return numbers
