"""What can be wrong with the corpora of a pretraining before any work is done."""

import hashlib

import numpy as np

from recallgap.counts.config import check_fit
from recallgap.errors import ConfigError, CorpusError
from recallgap.progress import Progress, note


def check_corpora(model_config, train, evaluation, config):
    """Refuse corpora that do not fit model and contexts; say what a reader would want to know."""
    doing = f"pretraining on {train.path}"
    if train.vocab_size > model_config.vocab_size:
        raise ConfigError(
            f"{doing}: its vocabulary has {train.vocab_size:,} entries, but the recipe's model has "
            f"{model_config.vocab_size:,}: --set vocab_size={train.vocab_size}, or another recipe"
        )
    if train.vocab_size < model_config.vocab_size:
        note(
            f"{doing}: its vocabulary has {train.vocab_size:,} entries, the model "
            f"{model_config.vocab_size:,}: the rest is never seen (--set vocab_size={train.vocab_size} "
            "leaves it out)"
        )
    check_fit(doing, train, evaluation)
    without = [corpus for corpus in (train, evaluation) if corpus.separator_id is None]
    if len(without) == 1:
        note(
            f"warning: documents of {without[0].path} end without a separator, those of the other corpus "
            "with one: build both alike"
        )
    n_eval_tokens = min(config.eval_tokens or evaluation.n_tokens, evaluation.n_tokens)
    if n_eval_tokens < config.context_len:
        raise ConfigError(
            f"evaluating on {evaluation.path}: {n_eval_tokens:,} tokens do not fill one context of "
            f"{config.context_len}; take more text or shorter contexts"
        )
    if train.n_tokens < config.context_len:
        raise CorpusError(
            f"{doing}: it has {train.n_tokens:,} tokens, fewer than one context of {config.context_len:,}; "
            "take more text, or a smaller context_len"
        )


def tell_length(train, steps):
    """Say how much of the corpus the run sees."""
    config, n_contexts = steps.config, steps.n_contexts
    left = train.n_tokens - n_contexts * config.context_len
    if left:
        note(f"{left:,} tokens at the end of {train.path} fill no context and are left out")
    if config.tokens is not None and steps.tokens != config.tokens:
        note(
            f"{config.tokens:,} tokens were asked for; whole steps of {config.step_tokens:,} make "
            f"{steps.tokens:,}"
        )
    if steps.epochs > 1:
        note(
            f"{train.path} has {train.n_tokens:,} tokens: {steps.tokens:,} training tokens are "
            f"{steps.epochs:.2f} epochs, so the model sees text again"
        )


def shared_documents(train, evaluation):
    """Number of evaluation documents whose very tokens are a training document too, and of their tokens."""
    lengths_N = np.diff(evaluation.document_bounds_N1)
    ours = {}
    for number in range(evaluation.n_documents):
        ours.setdefault(_digest(evaluation, number), []).append(number)
    candidates = np.flatnonzero(np.isin(np.diff(train.document_bounds_N1), np.unique(lengths_N)))
    found = set()
    with Progress("compare documents", total=len(candidates), unit="documents") as progress:
        for number in candidates.tolist():
            found.update(ours.get(_digest(train, number), ()))
            progress.advance(1)
    return len(found), int(sum(lengths_N[number] for number in found))


def _digest(corpus, number):
    start, stop = corpus.document_bounds_N1[number : number + 2].tolist()
    return hashlib.sha256(corpus.ids(start, stop).astype("<i4").tobytes()).digest()


def tell_shared(train, evaluation):
    """Warn where evaluation documents are in the training corpus; returns their number."""
    n_documents, n_tokens = shared_documents(train, evaluation)
    if n_documents:
        note(
            f"warning: {n_documents:,} of the {evaluation.n_documents:,} documents of {evaluation.path} "
            f"({n_tokens:,} of {evaluation.n_tokens:,} tokens) stand in the training corpus {train.path} as "
            "well, token for token: losses on them measure memory"
        )
    return n_documents
