"""RetNet and RWKV as gated recurrences (Zoology, arXiv 2312.04927, section H.2; algorithms 5 and 6).

A state of fixed size, decayed by a gate and added to at each position, is all an output sees of the past:

    RetNet  Z <- gamma Z + A[t]^T V[t]               O[t] = C[t] Z
    RWKV    Z <- exp(-w) Z + exp(K[t]) [V[t], 1]     O[t] = Z + exp(u + K[t]) [V[t], 1], as a fraction

A, C, V are what Zoology calls the projected rows: keys, queries, values. RWKV's Z is a numerator and a
denominator of each channel; the output takes the present row with a bonus u instead of through Z, so it comes
before the update. Both equal a sum over the past with weights gamma^(t - s) C[t] . A[s], or
exp(K[s] - (t - 1 - s) w): attention whose weights fade. `models.mixers.retnet` (after rotating A and C, which
are any rows here) and `models.mixers.rwkv` compute the same.
Legend: T positions, E width of keys, F width of values, D channels.
"""

import numpy as np

from recallgap.theory.finding import FAILS, HOLDS, Finding

FLOAT64_TOLERANCE = 1e-12
"""Of the largest output; sums of some tens of unit-size terms."""


def retnet(A_TE, V_TF, C_TE, gamma):
    """O, (T, F), and the last state, by algorithm 6 step by step."""
    Z_EF = np.zeros((A_TE.shape[1], V_TF.shape[1]), np.result_type(A_TE, V_TF, gamma))
    rows = []
    for a_E, v_F, c_E in zip(A_TE, V_TF, C_TE, strict=True):
        Z_EF = gamma * Z_EF + np.outer(a_E, v_F)
        rows.append(c_E @ Z_EF)
    return np.stack(rows), Z_EF


def retnet_parallel(A_TE, V_TF, C_TE, gamma):
    """O, (T, F), as attention: (C A^T * gamma^(t - s)) V over s <= t."""
    age_TT = np.subtract.outer(np.arange(len(A_TE)), np.arange(len(A_TE)))
    fade_TT = np.where(age_TT >= 0, gamma ** np.maximum(age_TT, 0), 0)
    return (C_TE @ A_TE.T * fade_TT) @ V_TF


def rwkv(w_D, u_D, K_TD, V_TD):
    """O, (T, D), by algorithm 5 step by step: numerator and denominator as they are, for moderate K."""
    top_D, bottom_D, rows = np.zeros(len(w_D)), np.zeros(len(w_D)), []
    for k_D, v_D in zip(K_TD, V_TD, strict=True):
        now_D = np.exp(u_D + k_D)
        rows.append((top_D + now_D * v_D) / (bottom_D + now_D))
        top_D = np.exp(-w_D) * top_D + np.exp(k_D) * v_D
        bottom_D = np.exp(-w_D) * bottom_D + np.exp(k_D)
    return np.stack(rows)


def rwkv_parallel(w_D, u_D, K_TD, V_TD):
    """O, (T, D), as a weighted mean over s <= t."""
    t_T = np.arange(len(K_TD))
    age_TT = np.subtract.outer(t_T, t_T)[:, :, None]
    log_weight_TTD = np.where(
        age_TT > 0, K_TD - (age_TT - 1) * w_D, np.where(age_TT == 0, K_TD + u_D, -np.inf)
    )
    weight_TTD = np.exp(log_weight_TTD)
    return (weight_TTD * V_TD).sum(1) / weight_TTD.sum(1)


def check_recurrences(rng, n_instances):
    """Recurrence against the sum over the past, exactly in integers, and against the trainable mixers."""
    import torch

    from recallgap.models.mixers.retnet import log_decays, retention
    from recallgap.models.mixers.rwkv import wkv

    wrong, worst = 0, {"sum": 0.0, "retnet": 0.0, "rwkv": 0.0}

    def compare(name, found, expected):
        worst[name] = max(worst[name], float(abs(found - expected).max() / max(1, abs(expected).max())))

    gammas = log_decays(4, like=torch.zeros((), dtype=torch.float64)).exp().numpy()
    for _ in range(n_instances):
        T, E, F = rng.integers(1, (40, 6, 6)).tolist()
        A_TE, C_TE, V_TF = (rng.integers(-9, 10, (T, width)) for width in (E, E, F))
        gamma = int(rng.integers(-1, 2))
        wrong += not np.array_equal(
            retnet(A_TE, V_TF, C_TE, gamma)[0], retnet_parallel(A_TE, V_TF, C_TE, gamma)
        )
        A_TE, C_TE, V_TF, K_TF = (rng.standard_normal((T, width)) for width in (E, E, F, F))
        decay_F, bonus_F, head = np.exp(rng.standard_normal(F)), rng.standard_normal(F), int(rng.integers(4))
        retained_TF, mean_TF = retnet(A_TE, V_TF, C_TE, gammas[head])[0], rwkv(decay_F, bonus_F, K_TF, V_TF)
        compare("sum", retained_TF, retnet_parallel(A_TE, V_TF, C_TE, gammas[head]))
        compare("sum", mean_TF, rwkv_parallel(decay_F, bonus_F, K_TF, V_TF))
        C, A, V = (torch.from_numpy(x)[None, :, None] for x in (C_TE, A_TE, V_TF))
        log_gamma = torch.from_numpy(np.log(gammas[head : head + 1]))
        compare("retnet", retention(C, A, V, log_gamma)[0, :, 0].numpy(), retained_TF)
        w, u, K, V = (torch.from_numpy(x) for x in (decay_F, bonus_F, K_TF[:, None], V_TF[:, None]))
        compare("rwkv", wkv(w, u, K, V)[:, 0].numpy(), mean_TF)
    return [
        Finding(
            statement="Section H.2",
            claim="RetNet and RWKV as gated recurrences against sums over the past",
            bound="equal",
            measured=f"{wrong} integer instances differ; float64 within {worst['sum']:.0e}",
            instances=n_instances,
            verdict=HOLDS if wrong == 0 and worst["sum"] < FLOAT64_TOLERANCE else FAILS,
        ),
        Finding(
            statement="Algorithms 5 and 6",
            claim="the trainable mixers rwkv and retnet against the recurrences",
            bound="equal",
            measured=f"rwkv within {worst['rwkv']:.0e}, retnet within {worst['retnet']:.0e}",
            instances=n_instances,
            verdict=HOLDS if max(worst["rwkv"], worst["retnet"]) < FLOAT64_TOLERANCE else FAILS,
        ),
    ]
