"""Recall during training: the loss on AR hits and on other tokens, at every evaluation.

Slices of the scored tokens (position 0 of a context is never scored):
    all
    ar_hit       AR hits of the labels
    other        all the rest
    rare_first   as rare in training as an AR hit, but new in its context: needs memory, not recall
    ar_hit_seen, other_seen    the same two by the counts of the tokens trained on so far, if asked for
Legend: C contexts, T tokens of a context, B contexts of a batch.
"""

from dataclasses import asdict

import numpy as np

from recallgap.artifact import fingerprint_of
from recallgap.errors import ConfigError
from recallgap.progress import note


class RecallWatch:
    """The evaluation contexts with their labels; `evaluate` sums the losses of a model by slice."""

    def __init__(self, corpus, labels, *, context_len, eval_tokens=None):
        """Take the whole contexts among the first `eval_tokens` tokens (None: all) of an evaluation corpus,
        at least one. ConfigError where the labels are not of this corpus and these contexts."""
        _check_labels(corpus, labels, context_len)
        n_tokens = min(eval_tokens or corpus.n_tokens, corpus.n_tokens)
        self.n_contexts = n_tokens // context_len
        self.shape = (self.n_contexts, context_len)
        self.ids_CT = corpus.ids(0, self.n_contexts * context_len).astype(np.int64).reshape(self.shape)
        self.threshold = labels.config["max_train_count"]
        self.distance_CT = self._column(labels, "distance")
        rare_CT = self._column(labels, "train_count") <= self.threshold
        self.scored_CT = np.zeros(self.shape, bool)
        self.scored_CT[:, 1:] = True
        whole_CT = self.scored_CT & ~_with_separator(self.ids_CT, corpus.separator_id)
        hit_CT = self._column(labels, "ar_hit")
        self.slices = {
            "all": self.scored_CT,
            "ar_hit": hit_CT,
            "other": self.scored_CT & ~hit_CT,
            "rare_first": whole_CT & (self.distance_CT == 0) & rare_CT,
        }

    def _column(self, labels, name):
        return labels.column(name)[: self.ids_CT.size].reshape(self.shape)

    def losses(self, model, head, batch_size, first=0, step=1):
        """Loss in nats of each token of contexts `first`, `first + step`, ...: float32 (C', T), NaN at 0.

        Every `first` takes the same number of forwards, as the processes of a sharded model must: one with a
        context less runs the first context once more and drops it.
        """
        from recallgap.evaluate.losses import row_losses

        rows = self.ids_CT[first::step]
        n_own = len(rows)
        rows = np.concatenate([rows, self.ids_CT[: -(-self.n_contexts // step) - n_own]])
        parts = [
            row_losses(model, head, list(rows[i : i + batch_size])) for i in range(0, len(rows), batch_size)
        ]
        return np.array([row for part in parts for row in part], np.float32)[:n_own]

    def sums(self, loss_CT, seen_CT=None, first=0, step=1):
        """{slice: {"n", "loss_sum"}} of the losses of contexts `first`, `first + step`, ...

        seen_CT: how often each token's bigram occurred in what was trained on, or None.
        """
        slices = dict(self.slices)
        if seen_CT is not None:
            hit_CT = self.scored_CT & (self.distance_CT > 0) & (seen_CT <= self.threshold)
            slices |= {"ar_hit_seen": hit_CT, "other_seen": self.scored_CT & ~hit_CT}
        found = {}
        for name, mask_CT in slices.items():
            part = loss_CT[mask_CT[first::step]]
            found[name] = {"n": int(part.size), "loss_sum": float(np.sum(part, dtype=np.float64))}
        return found


def _with_separator(ids_CT, separator_id):
    """True where the bigram that ends at a token holds the document separator."""
    if separator_id is None:
        return np.zeros(ids_CT.shape, bool)
    is_separator_CT = ids_CT == separator_id
    found_CT = is_separator_CT.copy()
    found_CT[:, 1:] |= is_separator_CT[:, :-1]
    return found_CT


def _check_labels(corpus, labels, context_len):
    doing = f"evaluating recall on {corpus.path} with labels {labels.path}"
    if labels.inputs["corpus"] != corpus.fingerprint:
        found = labels.inputs["corpus"][:12]
        raise ConfigError(
            f"{doing}: these are of corpus {found}, but this one is {corpus.fingerprint[:12]}; label it first"
        )
    wanted = {"policy": "packed", "context_len": context_len, "order": 2}
    for name, value in wanted.items():
        if labels.config[name] != value:
            raise ConfigError(
                f"{doing}: their {name} is {labels.config[name]}, but {value} is trained; "
                f"make labels with it (recallgap label), or leave --labels away"
            )


class SeenCounts:
    """How often each bigram of the evaluation contexts occurred in the training contexts seen so far.

    Bigrams lie within a context and within a document. What was seen follows from the position alone, so a
    resumed run counts again from the start and needs no file.
    """

    BLOCK = 1 << 11
    """Contexts that are counted at a time."""

    def __init__(self, watch, dataset, order):
        self.dataset, self.order, self.position = dataset, order, 0
        bigrams_CT = _bigrams(watch.ids_CT)
        self.keys_K, inverse = np.unique(bigrams_CT, return_inverse=True)
        self.inverse_CT = inverse.reshape(bigrams_CT.shape)
        self.counts_K = np.zeros(len(self.keys_K), np.int64)

    def advance_to(self, position):
        """Counts (C, T) of each evaluation token's bigram in the first `position` training contexts; entry 0
        of a context speaks of no bigram."""
        for start in range(self.position, position, self.BLOCK):
            contexts = self.order.contexts(start, min(start + self.BLOCK, position))
            self._add(np.stack([self.dataset[context] for context in np.sort(contexts).tolist()]))
        self.position = max(self.position, position)
        return self.counts_K[self.inverse_CT]

    def _add(self, ids_BT):
        keep_BT = ~_with_separator(ids_BT, self.dataset.corpus.separator_id)
        keep_BT[:, 0] = False
        seen = np.sort(_bigrams(ids_BT)[keep_BT])
        left, right = (np.searchsorted(seen, self.keys_K, side) for side in ("left", "right"))
        self.counts_K += right - left


def _bigrams(ids_CT):
    """Key of the bigram that ends at each token, uint64; 0 at the first of a context."""
    keys_CT = np.zeros(ids_CT.shape, np.uint64)
    keys_CT[:, 1:] = ids_CT[:, :-1].astype(np.uint64) << np.uint64(32) | ids_CT[:, 1:].astype(np.uint64)
    return keys_CT


def make_labels(train, evaluation, folder, *, config):
    """`Labels` of an evaluation corpus by the counts of a training corpus.

    Both are artifacts in `folder` that are made once: runs on the same corpora share the counts, those with
    the same `LabelConfig` the labels too.
    """
    from recallgap.counts import count_ngrams
    from recallgap.recall import label

    note(f"labels of {evaluation.path} by the counts of {train.path}: {folder}")
    counts = count_ngrams([train], folder / "counts", for_corpus=evaluation)
    name = f"labels-{fingerprint_of(asdict(config))[:8]}"
    return label(evaluation, counts, folder / name, config=config)
