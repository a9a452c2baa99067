"""How a stream of tokens is cut into contexts: what a model sees in one forward.

Contexts tile the stream in order, so they are given by their borders: context c is
[bounds_C1[c], bounds_C1[c + 1]). Recall never crosses a border.

Legend: N documents, C contexts; a trailing 1 means one more entry than that (borders).
"""

from dataclasses import asdict, dataclass

import numpy as np

from recallgap.errors import ConfigError
from recallgap.registry import pick

POLICIES = {
    "packed": "the stream is cut every context_len tokens, across documents, as language models are trained",
    "document": "each document is cut on its own, every context_len tokens",
}


LONGEST = (1 << 31) - 1


@dataclass(frozen=True, kw_only=True)
class ContextPolicy:
    """What counts as one context. Recorded in every label and loss artifact; they must agree."""

    policy: str = "packed"
    """One of POLICIES."""
    context_len: int = 2048
    """Tokens per context, T."""

    def __post_init__(self):
        pick("context policy", POLICIES, self.policy)
        if self.context_len < 2:
            raise ConfigError(f"context_len is {self.context_len}, but a prediction needs at least 2 tokens")
        if self.context_len > LONGEST:
            raise ConfigError(
                f"context_len is {self.context_len}, but a context holds at most {LONGEST:,} tokens"
            )

    def bounds(self, document_bounds_N1):
        """Borders of all contexts, int64 (C + 1,), for a stream whose documents have these borders."""
        if self.policy == "packed":
            document_bounds_N1 = document_bounds_N1[[0, -1]]
        return cut(document_bounds_N1, self.context_len)

    def to_dict(self):
        return asdict(self)


def cut(bounds, length):
    """Cut each span between `bounds` every `length` tokens; returns the borders of all non-empty pieces.

    >>> cut(np.array([0, 5, 5, 7]), 3).tolist()
    [0, 3, 5, 7]
    """
    bounds = np.asarray(bounds, dtype=np.int64)
    length = min(length, LONGEST)  # a larger one would not fit int64
    pieces = -(-np.diff(bounds) // length)
    first_piece = np.cumsum(pieces) - pieces
    within = np.arange(pieces.sum()) - np.repeat(first_piece, pieces)
    starts = np.repeat(bounds[:-1], pieces) + within * length
    return np.append(starts, bounds[-1])
