"""What an MQAR sequence is made of. Source: Zoology (arXiv 2312.04927), Algorithm 1 and appendix E.1.

A sequence is cut into slots as wide as a key and its value. The first slots hold the pairs, key and value; of
the others some hold a query, which is a key again, and one free token after it; all else is filler. The
target of a query stands at the last token of its key and is the key's value.
"""

import math
import numbers
from dataclasses import dataclass

from recallgap.errors import ConfigError
from recallgap.registry import pick

IGNORED = -100
"""Target of every position that is not a query, as PyTorch's cross entropy takes it."""
ALPHA = 0.01
FILLERS = {
    "zero": "token 0, which is neither a key nor a value",
    "random": "tokens that occur nowhere else in the sequence, so that nothing is recalled by accident",
}


@dataclass(frozen=True, kw_only=True)
class MqarConfig:
    """What decides a batch of MQAR sequences, besides their number and the random generator."""

    vocab_size: int = 8192
    """Token 0 is filler; keys are made of the other tokens of the first half, values are of the second."""
    context_len: int = 64
    """Tokens of a sequence, N."""
    n_pairs: int = 4
    """Keys of a sequence, D; all differ, and so do their values."""
    alpha: float = ALPHA
    """Free slots are queried with probability ~ g^(alpha - 1), g = 1, 2, ... from the pairs on: a power law
    of interaction distances, without replacement; 1 is uniform."""
    fillers: str = "zero"
    """One of FILLERS."""
    n_passes: int = 1
    """How often each key is queried."""
    n_overwritten: int = 0
    """Keys written a second time with another value, anywhere among the pairs; the latest counts."""
    key_len: int = 1
    """Tokens of a key; each occurs in this key alone, unless keys are compositional."""
    compositional: bool = False
    """Keys (key_len 2) are cells of a grid of first and second tokens: neither tells the value alone."""
    distances: tuple[int, ...] | None = None
    """Tokens from a key to its query, one of these, each as likely; None: the power law."""

    def __post_init__(self):
        pick("filler", FILLERS, self.fillers)
        wholes = {
            "vocab_size": 1,
            "context_len": 1,
            "n_pairs": 1,
            "n_passes": 1,
            "n_overwritten": 0,
            "key_len": 1,
        }
        for name, least in wholes.items():
            value = getattr(self, name)
            if not isinstance(value, numbers.Integral) or value < least:
                raise ConfigError(
                    f"an MQAR task: {name} is {value!r}, but must be a whole number from {least} on"
                )
        if not (isinstance(self.alpha, numbers.Real) and math.isfinite(self.alpha) and self.alpha >= 0):
            raise ConfigError(f"alpha is {self.alpha}, but a power law needs a finite alpha of at least 0")
        if self.n_overwritten > self.n_pairs:
            raise ConfigError(
                f"n_overwritten is {self.n_overwritten}, but there are {self.n_pairs} keys to overwrite"
            )
        if self.compositional:
            self._check_grid()
        if self.distances is not None:
            self._check_distances()
        self._check_context()
        self._check_vocabulary()

    @property
    def slot_len(self):
        """Tokens of a slot: a key and its value."""
        return self.key_len + 1

    @property
    def n_written(self):
        """Pairs at the start of a sequence, overwritten ones twice."""
        return self.n_pairs + self.n_overwritten

    @property
    def n_queries(self):
        return self.n_pairs * self.n_passes

    @property
    def n_query_slots(self):
        """Slots after the pairs; queries stand in some of them."""
        return self.context_len // self.slot_len - self.n_written

    @property
    def n_fillers(self):
        """Tokens of a sequence that are neither in a pair nor in a query."""
        return self.context_len - self.n_written * self.slot_len - self.n_queries * self.key_len

    @property
    def grid(self):
        """(first tokens, second tokens) of compositional keys, as near to a square as n_pairs allows."""
        n_first = next(n for n in range(math.isqrt(self.n_pairs), 0, -1) if self.n_pairs % n == 0)
        return n_first, self.n_pairs // n_first

    @property
    def n_key_tokens(self):
        """Different tokens in the keys of a sequence."""
        return sum(self.grid) if self.compositional else self.n_pairs * self.key_len

    def _check_grid(self):
        if self.key_len != 2:
            raise ConfigError(f"compositional keys are pairs of tokens, but key_len is {self.key_len}: set 2")
        if min(self.grid) < 2:
            larger = max(4, self.n_pairs + 1)  # what follows a prime is even
            raise ConfigError(
                f"n_pairs is {self.n_pairs}, but compositional keys fill a grid of at least 2 x 2 tokens; "
                f"the next that works is {larger}"
            )

    def _check_distances(self):
        if self.alpha != ALPHA:
            raise ConfigError(
                f"alpha is {self.alpha}, but with fixed distances no power law is drawn: leave one out"
            )
        if self.n_passes > 1:
            raise ConfigError(
                f"n_passes is {self.n_passes}, but fixed distances say where the one query of a key stands: "
                "set n_passes to 1, or leave distances out"
            )
        if not self.distances or len(set(self.distances)) < len(self.distances):
            raise ConfigError(f"distances are {list(self.distances)}, but need at least one, each once")
        least = self.n_written * self.slot_len
        wrong = [d for d in self.distances if d < least or d % self.slot_len]
        if wrong:
            raise ConfigError(
                f"distances hold {wrong}, but {self.n_written} pairs stand before the queries, in slots of "
                f"{self.slot_len} tokens: use multiples of {self.slot_len} from {least}"
            )

    def _check_context(self):
        slots = self.n_written + self.n_queries
        if self.distances is not None:
            slots = self.n_written + max(self.distances) // self.slot_len
        if self.context_len < slots * self.slot_len:
            raise ConfigError(
                f"context_len is {self.context_len}, but {self.n_written} pairs and {self.n_queries} queries"
                f"{' at these distances' if self.distances is not None else ''} of {self.slot_len} tokens "
                f"each need at least {slots * self.slot_len}"
            )

    def _check_vocabulary(self):
        # Token 0 is of the first half; an odd vocabulary's second half is the larger one.
        least = max(2 * (self.n_key_tokens + 1), 2 * self.n_written - 1)
        if self.fillers == "random":
            least = max(least, 1 + self.n_key_tokens + self.n_written + self.n_fillers)
        if self.vocab_size < least:
            fillers = f" and {self.n_fillers} fillers, all different," if self.fillers == "random" else ""
            raise ConfigError(
                f"vocab_size is {self.vocab_size}, but keys of {self.n_key_tokens} tokens in its first half, "
                f"{self.n_written} values in its second{fillers} need at least {least}"
            )
