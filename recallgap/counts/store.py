"""A counts artifact: how often each n-gram of an evaluation corpus occurs in training.

    keys-2.npy      sorted distinct n-grams of order 2, uint64, as described in keys.py
    counts-2.npy    how often each occurs in the counted training tokens, uint64
    keys-3.npy ...  the same for further orders; keys also of orders that only lead to a higher one

Legend: K keys, Q queries, n order.
"""

from functools import cached_property

import numpy as np

from recallgap.artifact import Opened, open_artifact
from recallgap.counts.keys import key_orders
from recallgap.counts.table import NGramTable
from recallgap.errors import CountsError


def keys_name(order):
    return f"keys-{order}.npy"


def counts_name(order):
    return f"counts-{order}.npy"


def write_counts(staging, keys, counts):
    """Write keys and counts, both {order: array}; what an interrupted run finished is kept."""
    arrays = {keys_name(order): keys_K for order, keys_K in keys.items()}
    arrays.update({counts_name(order): counts_K for order, counts_K in counts.items()})
    for name, array in arrays.items():
        if staging.done(name):
            continue
        with staging.write(name) as path, open(path, "wb") as file:
            append_array(file, array)


def append_array(file, array):
    """Write an array in .npy format. numpy's own writer hides why a write failed, such as a full disk."""
    np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(array))
    file.write(np.ascontiguousarray(array))


class Counts(Opened):
    """Training counts of the n-grams of an evaluation corpus, opened."""

    def __init__(self, opened):
        super().__init__(opened)
        self.orders = tuple(opened.config["orders"])
        """The orders that were asked for and can be looked up."""
        self.key_orders = key_orders(self.orders)
        """The orders it has keys of."""
        self.vocab_size = opened.config["vocab_size"]
        self.tokenizer_fingerprint = opened.inputs["tokenizer"]
        """None where the corpora were written from ids without a tokenizer."""
        self.n_tokens = opened.results["train_tokens"]
        """Training tokens that were counted."""
        self.coverage = opened.results["coverage"]
        """Their share of all tokens of the training corpora."""

    def keys(self, order):
        """Sorted distinct keys of one order, uint64 (K,); what they are is told in keys.py."""
        return np.load(self.path / keys_name(order))

    def counts(self, order):
        """How often each key of one of `orders` occurs in the counted training tokens, uint64 (K,)."""
        return np.load(self.path / counts_name(order))

    @cached_property
    def _table(self):
        keys = {order: self.keys(order) for order in self.key_orders}
        return NGramTable(keys, {order: self.counts(order) for order in self.orders})

    def lookup(self, ids_Qn, order):
        """Training counts of n-grams given by their token ids, uint64 (Q,).

        CountsError where an n-gram is not one of the evaluation corpus that the counts were made for: its
        count is unknown then, which is not 0.
        """
        doing = f"looking up {order}-grams in counts {self.path}"
        if order not in self.orders:
            held = ", ".join(map(str, self.orders))
            raise CountsError(f"{doing}: it holds orders {held}; count again with --orders {held},{order}")
        assert ids_Qn.shape[1] == order
        if ids_Qn.size and not 0 <= ids_Qn.min() <= ids_Qn.max() < self.vocab_size:
            span = f"{ids_Qn.min()} to {ids_Qn.max()}"
            raise CountsError(
                f"{doing}: ids go from {span}, but its vocabulary has {self.vocab_size} entries"
            )
        values_Q, found_Q = self._table.lookup(ids_Qn)
        if not found_Q.all():
            ids = ids_Qn[int(np.argmin(found_Q))].tolist()
            raise CountsError(
                f"{doing}: the n-gram of token ids {ids} is not among its keys, so the counts were made for "
                "another evaluation corpus; run `recallgap count TRAIN... --for THIS_CORPUS`"
            )
        return values_Q


def open_counts(path):
    """Open a counts folder made by `count_ngrams` or `merge_counts`."""
    return Counts(open_artifact(path, "counts"))
