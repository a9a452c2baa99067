"""The loops of the MQAR generator over sequences, compiled.

Random numbers are drawn as fractions of 53 bits, numba's fastest: no choice is favoured by more than
2^-53 times the number of choices.
Legend: B sequences, T tokens of a sequence, n tokens drawn, V vocabulary, K keys, L tokens of a key, W
written pairs, Q queries, X nodes of a tree.
"""

import numpy as np
from numba import njit


@njit(nogil=True, cache=True)
def draw_tokens(rng, lows, highs, sizes, vocab_size, tokens_Bn):
    """Fill each row with tokens that all differ: sizes[i] of [lows[i], highs[i]), one i after the other."""
    seen_V = np.full(vocab_size, -1, np.int64)
    for b in range(len(tokens_Bn)):
        at = 0
        for i in range(len(sizes)):
            low, width = lows[i], highs[i] - lows[i]
            for _ in range(sizes[i]):
                token = low + np.int64(rng.random() * width)
                while seen_V[token] == b:
                    token = low + np.int64(rng.random() * width)
                seen_V[token] = b
                tokens_Bn[b, at] = token
                at += 1


@njit(nogil=True, cache=True)
def draw_slots(rng, tree_X, slots_BQ):
    """Fill each row with slots, drawn one after the other by their weights and never twice.

    tree_X: whole numbers; node x holds the sum of nodes 2x and 2x + 1, the root is 1, and the leaves, the
    upper half, are the weights, which add up to at most 2^52 so that no fraction of it is rounded up.
    """
    n_leaves = len(tree_X) // 2
    left_X = np.empty_like(tree_X)
    for b in range(len(slots_BQ)):
        left_X[:] = tree_X
        for q in range(slots_BQ.shape[1]):
            rest = np.int64(rng.random() * left_X[1])
            x = 1
            while x < n_leaves:
                x *= 2
                right = np.int64(rest >= left_X[x])  # as a number: whether it is right cannot be predicted
                rest -= right * left_X[x]
                x += right
            slots_BQ[b, q] = x - n_leaves
            weight = left_X[x]
            while x > 0:
                left_X[x] -= weight
                x //= 2


@njit(nogil=True, cache=True)
def exchange_steps(rng, written_BK, slots_BK, n_slots, n_tries):
    """Let random keys i, j, k of a row take each other's step from the slot of their writing to that of their
    query, i that of j, j of k, k of i, where no two queries meet in a slot; where k is i or j, i and j swap.

    Swaps alone would not do: steps 8, 9, 10 of neighbours can only turn to 10, 8, 9 together.
    """
    n_keys = written_BK.shape[1]
    taken_S = np.empty(n_slots, np.bool_)
    for b in range(len(slots_BK)):
        written_K, slots_K = written_BK[b], slots_BK[b]
        taken_S[:] = False
        for slot in slots_K:
            taken_S[slot] = True
        for _ in range(n_tries):
            i, j, k = int(rng.random() * n_keys), int(rng.random() * n_keys), int(rng.random() * n_keys)
            if k == j:
                k = i
            for key in (i, j, k):
                taken_S[slots_K[key]] = False
            new_i = written_K[i] + slots_K[j] - written_K[j]
            new_j = written_K[j] + slots_K[k] - written_K[k]
            new_k = written_K[k] + slots_K[i] - written_K[i] if k != i else new_i
            meet = taken_S[new_i] or taken_S[new_j] or taken_S[new_k]
            if not (meet or i == j or new_i == new_j or new_j == new_k or (k != i and new_k == new_i)):
                slots_K[i], slots_K[j], slots_K[k] = new_i, new_j, new_k
            for key in (i, j, k):
                taken_S[slots_K[key]] = True


@njit(nogil=True, cache=True)
def write_pairs_and_queries(keys_BKL, values_BW, written_BW, queried_BQ, answers_BK, ids_BT, targets_BT):
    """Write pair m into its slot with key m % K, and query m with its target likewise."""
    n_keys, key_len = keys_BKL.shape[1:]
    for b in range(len(ids_BT)):
        for m in range(written_BW.shape[1]):
            t = written_BW[b, m] * (key_len + 1)
            for i in range(key_len):
                ids_BT[b, t + i] = keys_BKL[b, m % n_keys, i]
            ids_BT[b, t + key_len] = values_BW[b, m]
        for m in range(queried_BQ.shape[1]):
            t = queried_BQ[b, m] * (key_len + 1)
            for i in range(key_len):
                ids_BT[b, t + i] = keys_BKL[b, m % n_keys, i]
            targets_BT[b, t + key_len - 1] = answers_BK[b, m % n_keys]
