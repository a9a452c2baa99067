"""How n-grams are counted, and which corpora and counts fit each other."""

from dataclasses import dataclass

from recallgap.errors import ConfigError, CountsError
from recallgap.progress import note


@dataclass(frozen=True, kw_only=True)
class CountConfig:
    """How n-grams are counted."""

    across_documents: bool = False
    """Count also n-grams that cross a document border."""
    task: tuple[int, int] | None = None
    """(i, N): count only blocks i, i + N, i + 2N, ...; the N results are merged later."""
    block_tokens: int = 1 << 24
    """Tokens per block: the unit of tasks, and the least that is done between two checkpoints."""

    def __post_init__(self):
        if self.block_tokens < 1:
            raise ConfigError(f"block_tokens is {self.block_tokens}, but a block needs at least 1 token")
        if self.task is not None and not 0 <= self.task[0] < self.task[1]:
            number, of = self.task
            raise ConfigError(f"task is {number}/{of}, but tasks are numbered from 0/N to N-1/N")


HIGHEST_ORDER = 64


def check_orders(orders):
    """The orders, sorted; ConfigError unless there is one and each is from 1 to HIGHEST_ORDER.

    >>> check_orders([3, 2])
    (2, 3)
    """
    orders = tuple(sorted(set(orders)))
    if not orders or orders[0] < 1 or orders[-1] > HIGHEST_ORDER:
        wanted = f"at least one n, each from 1 to {HIGHEST_ORDER}"
        raise ConfigError(f"orders are {list(orders)}, but counting needs {wanted}")
    return orders


def check_fit(doing, left, right):
    """CountsError unless two corpora, or a corpus and counts, hold the ids of one tokenizer.

    Where the tokenizer of either is not known, their vocabulary sizes are compared.
    """
    pair = (left, right)
    separators = [getattr(side, "separator_id", None) for side in pair]
    if None not in separators and separators[0] != separators[1]:
        note(
            f"{doing}: documents end with id {separators[0]} in {left.path}, but with id {separators[1]} in "
            f"{right.path}; n-grams that hold a separator will not be found"
        )
    known = all(side.tokenizer_fingerprint for side in pair)
    if known and left.tokenizer_fingerprint != right.tokenizer_fingerprint:
        found = [f"tokenizer {side.tokenizer_fingerprint[:12]}" for side in pair]
    elif not known and left.vocab_size != right.vocab_size:
        found = [f"a vocabulary of {side.vocab_size:,} entries" for side in pair]
    else:
        return
    raise CountsError(
        f"{doing}: {left.path} has {found[0]}, but {right.path} has {found[1]}; "
        "token ids can be compared only where one tokenizer made them all"
    )
