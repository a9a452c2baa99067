"""What the model sees at once, what one file holds, and what one forward takes.

Legend: W windows; a trailing 1 means one more entry (borders).
"""

import numpy as np

from recallgap.corpus.contexts import cut


def window_bounds(document_bounds_N1, config):
    """Borders of the windows, int64 (W + 1,): the contexts, each cut further where the config says so."""
    bounds_W1 = config.context_policy.bounds(document_bounds_N1)
    return bounds_W1 if config.window is None else cut(bounds_W1, config.window)


def shard_bounds(bounds_W1, shard_tokens):
    """Borders between shards, as numbers of windows. A window goes to the shard in which it starts.

    >>> shard_bounds(np.array([0, 4, 8, 12, 14]), 8).tolist()
    [0, 2, 4]
    >>> shard_bounds(np.array([0]), 8).tolist()
    [0, 0]
    """
    _, first_window = np.unique(bounds_W1[:-1] // shard_tokens, return_index=True)
    n_windows = len(bounds_W1) - 1
    return np.append(first_window, n_windows) if n_windows else np.array([0, 0])


def batches(lengths, batch_tokens):
    """Yield arrays of row numbers, longest rows first, each batch at most `batch_tokens` with its padding.

    Rows of one token predict nothing and are in no batch. A row longer than the budget goes alone.

    >>> [rows.tolist() for rows in batches(np.array([3, 1, 5, 2, 4]), 8)]
    [[2], [4, 0], [3]]
    """
    order = np.argsort(-lengths, kind="stable")
    order = order[lengths[order] > 1]
    start = 0
    while start < len(order):
        stop = start + max(1, batch_tokens // int(lengths[order[start]]))
        yield order[start:stop]
        start = stop


def padded(rows):
    """Rows of ids as one int64 array, padded on the right with id 0, and their lengths."""
    lengths = np.array([len(row) for row in rows])
    ids = np.zeros((len(rows), lengths.max()), dtype=np.int64)
    for row, out in zip(rows, ids, strict=True):
        out[: len(row)] = row
    return ids, lengths
