"""The delta rule read literally, and inputs for it."""

import torch
from recurrences import normal, uniform
from torch.nn import functional as F


def slow_delta_rule(q_BTHK, k_BTHK, v_BTHV, beta_BTH, g_BTH):
    """S_t = exp(g_t) (I - beta_t k_t k_t^T) S_{t-1} + beta_t k_t v_t^T, o_t = S_t^T q_t."""
    B, T, H, K = k_BTHK.shape
    S_BHKV, outputs = v_BTHV.new_zeros(B, H, K, v_BTHV.shape[-1]), []
    eye = torch.eye(K, dtype=v_BTHV.dtype)
    for t in range(T):
        k, beta = k_BTHK[:, t], beta_BTH[:, t, :, None, None]
        kept = g_BTH[:, t, :, None, None].exp() * (eye - beta * torch.einsum("bhi,bhj->bhij", k, k))
        S_BHKV = kept @ S_BHKV + beta * torch.einsum("bhk,bhv->bhkv", k, v_BTHV[:, t])
        outputs.append(torch.einsum("bhkv,bhk->bhv", S_BHKV, q_BTHK[:, t]))
    return torch.stack(outputs, 1)


def delta_inputs(T, *, B=2, H=3, K=4, V=5):
    """q, k, v, beta and g; keys of length 1."""
    q, k = normal(B, T, H, K), F.normalize(normal(B, T, H, K, seed=1), dim=-1)
    return q, k, normal(B, T, H, V, seed=2), uniform(B, T, H, seed=3), -uniform(B, T, H, seed=4) / 4
