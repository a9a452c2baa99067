"""The very bytes of zoology's MQAR generator (github HazyResearch/zoology, `multiquery_ar`).

Its sequences are those of numpy's legacy random stream, which only a draw per sequence repeats: slow. Its
random fillers come from torch's and can be any token: at a vocabulary of 8192, one of them is a key of its
sequence in 2 % (N = 64, D = 4) to 93 % (N = 512, D = 64) of sequences. `generate` has neither fault.
Legend: B sequences, T tokens, K keys, G slots that can be queried.
"""

import numpy as np

from recallgap.errors import ConfigError
from recallgap.mqar.config import IGNORED, MqarConfig

LEGACY_SEEDS = 1 << 32
"""Seeds of numpy's legacy stream go from 0 to one less."""


def generate_like_zoology(config, n_sequences, *, seed, torch_seed=None):
    """(ids, targets) equal to zoology's inputs and labels of its `seed`, both (n_sequences, T) int64.

    config: an MqarConfig without variants; its vocab_size, context_len, n_pairs, alpha and fillers are
    zoology's vocab_size, input_seq_len, num_kv_pairs, power_a and random_non_queries. torch_seed: what torch
    was seeded with last before zoology drew its random fillers.
    """
    _check(config, n_sequences, seed, torch_seed)
    N, D, half = config.context_len, config.n_pairs, config.vocab_size // 2
    stream = np.random.RandomState(seed)  # the legacy stream is the point
    keys_BK = _choices(stream, n_sequences, half - 1, D) + 1
    values_BK = _choices(stream, n_sequences, config.vocab_size - half, D) + half
    p_G = config.alpha * np.arange(1, config.n_query_slots + 1) ** (config.alpha - 1)
    p_G = p_G / p_G.sum()
    slots_BK = np.array([stream.choice(len(p_G), D, replace=False, p=p_G) for _ in range(n_sequences)])

    ids_BT = np.zeros((n_sequences, N), np.int64)
    targets_BT = np.full((n_sequences, N), IGNORED, np.int64)
    ids_BT[:, 0 : 2 * D : 2], ids_BT[:, 1 : 2 * D : 2] = keys_BK, values_BK
    np.put_along_axis(ids_BT, 2 * D + 2 * slots_BK, keys_BK, axis=1)
    np.put_along_axis(targets_BT, 2 * D + 2 * slots_BK, values_BK, axis=1)
    if config.fillers == "random":
        import torch

        generator = torch.Generator().manual_seed(torch_seed)
        drawn_BT = torch.randint(config.vocab_size, ids_BT.shape, generator=generator).numpy()
        ids_BT = np.where(ids_BT == 0, drawn_BT, ids_BT)
    return ids_BT, targets_BT


def _choices(stream, n_sequences, n, k):
    """(B, k) different numbers below n, as `choice` without replacement draws them."""
    return np.array([stream.permutation(n)[:k] for _ in range(n_sequences)])


def _check(config, n_sequences, seed, torch_seed):
    """ConfigError for what zoology's generator cannot make."""
    doing = "generating zoology's sequences"
    plain = MqarConfig(
        vocab_size=config.vocab_size,
        context_len=config.context_len,
        n_pairs=config.n_pairs,
        alpha=config.alpha,
        fillers=config.fillers,
    )
    if config != plain:
        raise ConfigError(f"{doing}: its generator has no variants; leave them out, or the preset")
    if config.alpha == 0:
        raise ConfigError(f"{doing}: alpha is 0, where its probabilities are undefined; use a small alpha")
    if config.context_len % 2 or config.vocab_size <= config.context_len:
        raise ConfigError(
            f"{doing}: context_len is {config.context_len} and vocab_size {config.vocab_size}, but it needs "
            "an even context_len and a larger vocab_size; the smallest that works are "
            f"{config.context_len + config.context_len % 2} and "
            f"{max(config.vocab_size, config.context_len + config.context_len % 2 + 1)}"
        )
    if not 0 <= seed < LEGACY_SEEDS:
        raise ConfigError(f"{doing}: the seed is {seed}, but its seeds go from 0 to {LEGACY_SEEDS - 1}")
    if n_sequences < 1:
        raise ConfigError(f"{doing}: n_sequences is {n_sequences}, but it makes at least 1")
    if config.fillers == "random" and torch_seed is None:
        raise ConfigError(f"{doing}: its random fillers are torch's; name torch_seed too")
