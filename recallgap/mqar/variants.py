"""What variants of MQAR need beyond Algorithm 1: compositional keys, and a fixed set of distances.

Legend: B sequences, n tokens, K keys, L tokens of a key.
"""

import numpy as np

from recallgap.mqar.kernels import exchange_steps

EXCHANGES_PER_KEY = 8
"""Exchanges of distances that are tried, where keys have fixed ones."""


def key_tokens(config, rng, tokens_Bn):
    """Keys (B, K, L) made of the different tokens of each sequence."""
    B = len(tokens_Bn)
    if not config.compositional:
        return tokens_Bn.reshape(B, config.n_pairs, config.key_len)
    n_first, n_second = config.grid
    # In any order, so that the place of a pair does not tell its tokens.
    cells_BK = rng.permuted(np.tile(np.arange(config.n_pairs), (B, 1)), axis=1)
    first_BK = np.take_along_axis(tokens_Bn, cells_BK // n_second, axis=1)
    second_BK = np.take_along_axis(tokens_Bn, n_first + cells_BK % n_second, axis=1)
    return np.stack([first_BK, second_BK], axis=2)


def slots_at_distances(config, rng, written_BK):
    """A slot for the query of each key, at one of the config's distances after the slot where it is written.

    Distances are drawn independently. Given to the keys in rising order they never put two queries into one
    slot; then keys exchange theirs at random, as the slots allow, so that the order of the keys does not tell
    the order of their queries.
    """
    B, K = written_BK.shape
    steps = np.sort(np.array(config.distances)) // config.slot_len
    steps_BK = steps[np.sort(rng.integers(0, len(steps), (B, K)), axis=1)]
    order_BK = np.argsort(written_BK, axis=1)
    slots_BK = np.empty_like(written_BK)
    np.put_along_axis(slots_BK, order_BK, np.take_along_axis(written_BK, order_BK, axis=1) + steps_BK, axis=1)
    if K > 1:
        n_slots = config.n_written + config.n_query_slots
        exchange_steps(rng, written_BK, slots_BK, n_slots, EXCHANGES_PER_KEY * K)
    return slots_BK
