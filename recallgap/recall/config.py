"""How tokens are labelled."""

import math
from dataclasses import dataclass
from fractions import Fraction

from recallgap.corpus.contexts import ContextPolicy
from recallgap.errors import ConfigError
from recallgap.recall.repeats import SEPARATORS
from recallgap.registry import pick

LARGEST_THRESHOLD = 10**15
MAX_TRAIN_COUNT = 1250
"""Of the paper (arXiv 2312.04927), which counted in about 10^10 tokens: 0.125 per million."""


@dataclass(frozen=True, kw_only=True)
class LabelConfig:
    """What counts as a repeat, and which repeats are AR hits."""

    order: int = 2
    """n of the n-grams; 2 as in the paper."""
    policy: str = "packed"
    """How the stream is cut into contexts; one of `POLICIES` of recallgap.corpus.contexts."""
    context_len: int = 2048
    """Tokens per context, T; must be what the models are given."""
    max_train_count: int | None = None
    """An AR hit's n-gram occurs at most so often in the counted training tokens. Default: 1250."""
    rate_per_million: float | None = None
    """The same per million of these tokens, in place of max_train_count; rounded down to a count."""
    separators: str = "drop"
    """One of SEPARATORS."""
    count_orders: tuple[int, ...] = ()
    """Further orders whose training counts are stored; column train_count_3 and so on."""

    def __post_init__(self):
        ContextPolicy(policy=self.policy, context_len=self.context_len)
        pick("separator policy", SEPARATORS, self.separators)
        if self.order < 2:
            raise ConfigError(f"order is {self.order}, but recall needs an n-gram with a prefix: at least 2")
        if self.max_train_count is not None and self.rate_per_million is not None:
            raise ConfigError("max_train_count and rate_per_million both set the threshold; give one of them")
        for name in ("max_train_count", "rate_per_million"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= LARGEST_THRESHOLD:
                raise ConfigError(
                    f"{name} is {value}, but a threshold lies between 0 and {LARGEST_THRESHOLD:.0e}"
                )
        if len(set(self.count_orders)) < len(self.count_orders) or self.order in self.count_orders:
            raise ConfigError(
                f"count_orders are {list(self.count_orders)}, but each should be new: "
                f"the count of order {self.order} is stored anyway"
            )

    @property
    def contexts(self):
        return ContextPolicy(policy=self.policy, context_len=self.context_len)

    def threshold(self, train_tokens):
        """The largest training count of an AR hit, given how many training tokens were counted.

        >>> LabelConfig().threshold(10**9), LabelConfig(rate_per_million=0.29).threshold(10**8)
        (1250, 29)
        """
        if self.rate_per_million is not None:
            # As a decimal fraction: in binary, 0.29 * 10^8 / 10^6 comes out below 29.
            return math.floor(Fraction(str(self.rate_per_million)) * train_tokens / 10**6)
        return MAX_TRAIN_COUNT if self.max_train_count is None else self.max_train_count
