"""The order in which a corpus is seen: a function of seed and position alone, whatever the architecture.

The stream is cut into contexts of T tokens (what is left at its end fills none and is left out). Epoch e
shows all of them once, in the order of a permutation drawn from (data_seed, e).
Legend: C contexts of an epoch, T tokens of a context, P positions.
"""

import numpy as np


class DataOrder:
    """Which context stands at which position of the training sequence."""

    def __init__(self, n_contexts, seed):
        self.n_contexts, self.seed = n_contexts, seed
        self._epoch, self._permutation = None, None

    def permutation(self, epoch):
        """The contexts in the order of an epoch, int64 (C,)."""
        if epoch != self._epoch:
            generator = np.random.Generator(np.random.PCG64([self.seed, epoch]))
            self._epoch, self._permutation = epoch, generator.permutation(self.n_contexts)
        return self._permutation

    def contexts(self, start, stop):
        """Numbers of the contexts at positions [start, stop), int64."""
        parts = [np.empty(0, np.int64)]
        while start < stop:
            epoch, first = divmod(start, self.n_contexts)
            last = min(self.n_contexts, first + stop - start)
            parts.append(self.permutation(epoch)[first:last])
            start += last - first
        return np.concatenate(parts)


class Positions:
    """The positions of a whole run as a PyTorch sampler: it yields the context at each."""

    def __init__(self, order, n_positions):
        self.order, self.n_positions = order, n_positions

    def __len__(self):
        return self.n_positions

    def __iter__(self):
        C = self.order.n_contexts
        for start in range(0, self.n_positions, C):
            yield from self.order.contexts(start, min(start + C, self.n_positions)).tolist()


class PackedContexts:
    """The contexts of a corpus as a PyTorch dataset: int64 ids (T,)."""

    def __init__(self, corpus, context_len):
        self.corpus, self.context_len = corpus, context_len

    def __len__(self):
        return self.corpus.n_tokens // self.context_len

    def __getitem__(self, context):
        start = context * self.context_len
        return self.corpus.ids(start, start + self.context_len).astype(np.int64)


def as_batch(contexts):
    """Contexts as what the model takes: each token is the label of the position before it."""
    import torch

    ids_BT = torch.from_numpy(np.stack(contexts))
    return {"input_ids": ids_BT, "labels": ids_BT}


def documents_of(corpus, contexts, context_len):
    """Numbers of the documents that the contexts touch, sorted."""
    starts = np.asarray(contexts) * context_len
    first, last = corpus.document_of(starts), corpus.document_of(starts + context_len - 1)
    return sorted({d for a, b in zip(first.tolist(), last.tolist(), strict=True) for d in range(a, b + 1)})
