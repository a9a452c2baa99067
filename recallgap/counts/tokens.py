"""Tokens of a corpus as the counting needs them: checked, and marked where a document starts."""

import numpy as np

from recallgap.counts.table import BORDER
from recallgap.errors import CorpusError


def checked_tokens(corpus, start, stop):
    """Token ids [start, stop) as uint32; CorpusError where one is beyond the vocabulary."""
    ids = corpus.ids(start, stop).astype(np.uint32)
    if ids.size and ids.max() >= corpus.vocab_size:
        at = start + int(np.argmax(ids >= corpus.vocab_size))
        document = int(corpus.document_of(at))
        position = at - int(corpus.document_bounds_N1[document])
        raise CorpusError(
            f"reading the tokens of corpus {corpus.path}: the id at position {position} of document "
            f"{document} is {corpus.ids(at, at + 1)[0]}, but the vocabulary has {corpus.vocab_size} entries; "
            "build the corpus again"
        )
    return ids


def marked_tokens(corpus, start, stop, order, *, across_documents):
    """Tokens of the n-grams up to `order` that start in [start, stop): these and order - 1 more, as uint32.

    BORDER is set on the first token of every document (unless across_documents) and on what stands for tokens
    beyond the end of the stream, so that no n-gram crosses either.
    """
    end = min(stop + order - 1, corpus.n_tokens)
    tokens = np.full(stop - start + order - 1, BORDER)
    tokens[: end - start] = checked_tokens(corpus, start, end)
    if not across_documents:
        bounds = corpus.document_bounds_N1
        firsts = bounds[np.searchsorted(bounds, start) : np.searchsorted(bounds, end)]
        tokens[firsts - start] |= BORDER
    return tokens


def n_ngrams(corpus, start, stop, order, *, across_documents):
    """How many n-grams start in [start, stop) of the stream, and how many of them are counted."""
    in_stream = max(min(stop, corpus.n_tokens - order + 1) - start, 0)
    if across_documents:
        return in_stream, in_stream
    bounds = corpus.document_bounds_N1
    low = max(np.searchsorted(bounds, start, side="right") - 1, 0)
    bounds = bounds[low : np.searchsorted(bounds, stop) + 1]
    firsts, ends = np.maximum(bounds[:-1], start), np.minimum(bounds[1:] - order + 1, stop)
    return in_stream, int(np.maximum(ends - firsts, 0).sum())
