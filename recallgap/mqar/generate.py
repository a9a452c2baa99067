"""MQAR sequences, many at once. Source: Zoology (arXiv 2312.04927), Algorithm 1 and appendix E.1.

Legend: B sequences, T tokens of a sequence, K keys, L tokens of a key, W written pairs, Q queries, G slots
that can be queried, n tokens drawn, X nodes of a tree.
"""

import numpy as np

from recallgap.errors import ConfigError
from recallgap.mqar.config import IGNORED
from recallgap.mqar.kernels import draw_slots, draw_tokens, write_pairs_and_queries
from recallgap.mqar.variants import key_tokens, slots_at_distances

BLOCK_TOKENS = 1 << 18
"""Of the sequences made together, which should fit into a cache; another number, other sequences."""
LARGEST_WEIGHT = 1 << 52


def generate(config, n_sequences, rng):
    """(ids, targets) of MQAR sequences, both (n_sequences, context_len) int64.

    The target of a query stands at the last token of its key, where a causal model has to predict the value;
    all other targets are IGNORED (-100). rng: a `np.random.Generator`; the same state, the same sequences.

    >>> from recallgap.mqar.config import MqarConfig
    >>> config = MqarConfig(vocab_size=12, context_len=10, n_pairs=2)
    >>> ids, targets = generate(config, 1, np.random.default_rng(0))
    >>> ids[0].tolist()
    [4, 6, 2, 10, 2, 0, 0, 0, 4, 0]
    >>> targets[0].tolist()
    [-100, -100, -100, -100, 10, -100, -100, -100, 6, -100]
    """
    if not isinstance(rng, np.random.Generator):
        raise ConfigError(
            f"making MQAR sequences: rng is {rng!r}, but a generator is needed: np.random.default_rng(seed)"
        )
    if n_sequences < 0:
        raise ConfigError(f"n_sequences is {n_sequences}, but must be at least 0")
    ids_BT = np.zeros((n_sequences, config.context_len), np.int64)
    targets_BT = np.full((n_sequences, config.context_len), IGNORED, np.int64)
    block = max(1, BLOCK_TOKENS // config.context_len)
    for start in range(0, n_sequences, block):
        part = slice(start, start + block)
        _fill(config, rng, ids_BT[part], targets_BT[part])
    return ids_BT, targets_BT


def with_answers(ids_BT, targets_BT):
    """The sequences with each answer written after its query, as in the text that MQAR stands for."""
    answered_BT = ids_BT.copy()
    rows, at = np.nonzero(targets_BT != IGNORED)
    answered_BT[rows, at + 1] = targets_BT[rows, at]
    return answered_BT


def _fill(config, rng, ids_BT, targets_BT):
    """Write sequences over zeros and ignored targets."""
    B, K, W, again = len(ids_BT), config.n_pairs, config.n_written, slice(0, config.n_overwritten)
    keys_Bn, values_BW, fillers_Bn = _tokens(config, rng, B)
    keys_BKL = key_tokens(config, rng, keys_Bn)
    written_BW = np.tile(np.arange(W), (B, 1))
    if config.n_overwritten:
        written_BW = rng.permuted(written_BW, axis=1)
    # Pair m is the first writing of key m or, from m = K on, the second one of key m - K: the latest counts.
    latest_BK, answers_BK = written_BW[:, :K].copy(), values_BW[:, :K].copy()
    latest_BK[:, again] = np.maximum(written_BW[:, again], written_BW[:, K:])
    answers_BK[:, again] = np.where(
        written_BW[:, K:] > written_BW[:, again], values_BW[:, K:], values_BW[:, again]
    )
    if config.distances is None:
        queried_BQ = np.empty((B, config.n_queries), np.int64)
        draw_slots(rng, _weight_tree(config), queried_BQ)
        queried_BQ += W
    else:
        queried_BQ = slots_at_distances(config, rng, latest_BK)
    write_pairs_and_queries(keys_BKL, values_BW, written_BW, queried_BQ, answers_BK, ids_BT, targets_BT)
    if config.fillers == "random":
        ids_BT[ids_BT == 0] = fillers_Bn.ravel()


def _tokens(config, rng, B):
    """Tokens of keys, values and random fillers, (B, n) each; all tokens of a sequence differ."""
    V, half = config.vocab_size, config.vocab_size // 2
    n_fillers = config.n_fillers if config.fillers == "random" else 0
    sizes = np.array([config.n_key_tokens, config.n_written, n_fillers])
    tokens_Bn = np.empty((B, sizes.sum()), np.int64)
    draw_tokens(rng, np.array([1, half, 1]), np.array([half, V, V]), sizes, V, tokens_Bn)
    return np.split(tokens_Bn, np.cumsum(sizes)[:2], axis=1)


def _weight_tree(config):
    """The weights g^(alpha - 1) of the slots after the pairs, g = 1, 2, ..., for `draw_slots`."""
    G = config.n_query_slots
    log_weight_G = (config.alpha - 1) * np.log(np.arange(1, G + 1))
    share_G = np.exp(log_weight_G - log_weight_G.max())
    n_leaves = 1 << (G - 1).bit_length()
    tree_X = np.zeros(2 * n_leaves, np.int64)
    tree_X[n_leaves : n_leaves + G] = np.maximum(share_G / share_G.sum() * LARGEST_WEIGHT - G, 1)
    for x in range(n_leaves - 1, 0, -1):
        tree_X[x] = tree_X[2 * x] + tree_X[2 * x + 1]
    return tree_X
