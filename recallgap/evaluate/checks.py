"""What must hold between a checkpoint, a corpus and the losses; each error names both sides."""

import numpy as np

from recallgap.errors import CheckpointError, ConfigError

ID_BLOCK = 1 << 22
"""Ids read at once."""


def check_tokenizers(checkpoint, corpus):
    """The same ids must mean the same tokens; where either side has no tokenizer this cannot be known."""
    ours, theirs = checkpoint.tokenizer_fingerprint, corpus.tokenizer_fingerprint
    if None not in (ours, theirs) and ours != theirs:
        raise CheckpointError(
            f"evaluating {checkpoint.name} on {corpus.path}: the checkpoint's tokenizer is {ours[:16]}, but "
            f"the corpus was made with {theirs[:16]}, so its ids mean other tokens. Build the corpus again "
            "with the checkpoint's tokenizer"
        )


def check_lengths(checkpoint, bounds_W1):
    """No window is longer than what the model's config declares."""
    longest = int(np.diff(bounds_W1).max(initial=0))
    if checkpoint.max_len is not None and longest > checkpoint.max_len:
        raise CheckpointError(
            f"evaluating {checkpoint.name}: the longest window has {longest} tokens, but the model is made "
            f"for at most {checkpoint.max_len}. Use --context-len {checkpoint.max_len}, or --window "
            f"{checkpoint.max_len} to cut longer contexts"
        )


def check_ids(checkpoint, vocab_size, corpus):
    """Every id of the corpus is one that the model can read and predict."""
    for start in range(0, corpus.n_tokens, ID_BLOCK):
        ids = corpus.ids(start, min(start + ID_BLOCK, corpus.n_tokens))
        if ids.max() >= vocab_size:
            first = int(np.argmax(ids >= vocab_size))
            raise CheckpointError(
                f"evaluating {checkpoint.name} on {corpus.path}: {_place(corpus, start + first)} has id "
                f"{ids[first]}, but the model has {vocab_size} ids. Was the corpus made with its tokenizer?"
            )


def check_finite(checkpoint, corpus, loss_T, first):
    """`loss_T` are the losses of the stream's tokens from `first` on, all of them scored."""
    bad = np.flatnonzero(~np.isfinite(loss_T))
    if bad.size:
        place = _place(corpus, first + int(bad[0]))
        cure = (
            "" if checkpoint.dtype == "float32" else f", or {checkpoint.dtype} overflows: try --dtype float32"
        )
        raise CheckpointError(
            f"evaluating {checkpoint.name} on {corpus.path}: the loss of {place} is {loss_T[bad[0]]}. "
            f"The weights hold nan or inf{cure}"
        )


def prefix_ids(checkpoint, prefix, vocab_size):
    """The ids that stand before every window, int64: one or none."""
    if prefix == "none":
        return np.empty(0, dtype=np.int64)
    found = {"bos": checkpoint.bos_id, "eos": checkpoint.eos_id}[prefix]
    if found is None or not 0 <= found < vocab_size:
        raise ConfigError(
            f"prefix is '{prefix}', but {checkpoint.name} has {found} as its {prefix} id and {vocab_size} "
            "ids in all; use --prefix none"
        )
    return np.array([found], dtype=np.int64)


def _place(corpus, position):
    document = int(corpus.document_of(position))
    within = position - int(corpus.document_bounds_N1[document])
    return f"token {within} of document {document} (token {position} of the stream)"
