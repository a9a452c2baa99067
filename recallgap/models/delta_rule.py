"""The delta rule in chunks, with or without decay (arXiv 2406.06484, section 3; arXiv 2412.06464, section 3).

    S_t = exp(g_t) S_{t-1} + k_t u_t^T,   u_t = beta_t (v_t - exp(g_t) S_{t-1}^T k_t)          o_t = S_t^T q_t

The writes u of a chunk depend on each other through products of keys alone, so they solve a triangular system
(the WY or UT form): with b_t = g_1 + .. + g_t and S the state before the chunk,

    (I + A) u = beta (v - exp(b) k S),   A_ts = beta_t (k_t . k_s) exp(b_t - b_s) for s < t

Substitution is stable for keys of length at most 1 and beta in [0, 2], equal keys included; powers of A,
which would invert it too, grow without bound. Every exponent is at most 0.
Legend: B batch, T position, H heads, K key width, V value width.
"""

import torch
from torch.linalg import solve_triangular

from recallgap.models.chunks import decays, heads_first, run, sum_from

CHUNK = 64


def delta_rule(q_BTHK, k_BTHK, v_BTHV, beta_BTH, g_BTH=None):
    """Outputs o, (B, T, H, V), float32; keys of length at most 1; g at most 0, None: no decay."""
    g_BTH = torch.zeros_like(beta_BTH) if g_BTH is None else g_BTH
    return run(_Rule, CHUNK, q_BTHK, k_BTHK, v_BTHV, beta_BTH, g_BTH)


def delta_rule_step(S_BHKV, q_BHK, k_BHK, v_BHV, beta_BH, g_BH=None):
    """(output, state) of one position, by the recurrence itself."""
    if g_BH is not None:
        S_BHKV = S_BHKV * g_BH.exp()[..., None, None]
    u_BHV = beta_BH.unsqueeze(-1) * (v_BHV - _read(S_BHKV, k_BHK))
    S_BHKV = S_BHKV + k_BHK.unsqueeze(-1) * u_BHV.unsqueeze(-2)
    return _read(S_BHKV, q_BHK), S_BHKV


def _read(S_BHKV, k_BHK):
    return (k_BHK.unsqueeze(-2) @ S_BHKV).squeeze(-2)


def delta_rule_flops(T, H, K, V):
    """Operations a token of the matrix products of `delta_rule` and of substitution, half a product's."""
    L = min(T, CHUNK)
    return 2 * H * (L * (2 * K + V) + 3 * K * V) + H * L * V


class _Rule:
    @staticmethod
    def start(_q, k_BTHK, v_BTHV, *_):
        B, _, H, V = v_BTHV.shape
        return v_BTHV.new_zeros(B, H, k_BTHK.shape[-1], V)

    @staticmethod
    def forward(S_BHKV, q, k, v, beta, g):
        q, k, v, beta, g = map(heads_first, (q, k, v, beta.unsqueeze(-1), g))
        decay, from_start, to_end = _decays(g)
        A = (k @ k.mT).mul_(decay).mul_(beta)
        u = _solve(A, (v - (k @ S_BHKV).mul_(from_start)).mul_(beta))
        o = (q @ S_BHKV).mul_(from_start) + (q @ k.mT).mul_(decay) @ u
        return o.transpose(1, 2), (k * to_end).mT @ u + S_BHKV * from_start[:, :, -1:]

    @staticmethod
    def backward(S_BHKV, end_BHKV, dend_BHKV, o, do, q, k, v, beta, g):
        q, k, v, beta, g, o, do = map(heads_first, (q, k, v, beta.unsqueeze(-1), g, o, do))
        decay, from_start, to_end = _decays(g)
        products = (k @ k.mT).mul_(decay)
        A = products * beta
        error = v - (k @ S_BHKV).mul_(from_start)
        u = _solve(A, error * beta)
        du = ((q @ k.mT).mul_(decay).mT @ do) + (k @ dend_BHKV).mul_(to_end)
        dright = solve_triangular(A.mT, du, upper=True, unitriangular=True)
        dA = (dright @ u.mT).neg_().tril_(-1)
        dbeta = (error * dright).sum(-1) + (dA * products).sum(-1)
        dscores = (do @ u.mT).mul_(decay)
        dproducts = dA.mul_(decay).mul_(beta)
        dv, read = dright * beta, do * from_start
        erased = dv * from_start
        dq = read @ S_BHKV.mT + dscores @ k
        dk = (u * to_end) @ dend_BHKV.mT - erased @ S_BHKV.mT
        dk += dscores.mT @ q + (dproducts + dproducts.mT) @ k
        db = (o * do).sum(-1) - (v * dv).sum(-1)
        db[..., -1] += (end_BHKV * dend_BHKV).sum((-1, -2))
        dS_BHKV = q.mT @ read - k.mT @ erased + dend_BHKV * from_start[:, :, -1:]
        return dS_BHKV, *(d.transpose(1, 2) for d in (dq, dk, dv, dbeta, sum_from(db, -1)))


def _solve(A, right):
    return solve_triangular(A, right, upper=False, unitriangular=True)


def _decays(g_BHT):
    """exp(b_t - b_s) for s <= t, and the decays from before the chunk and to its end, (B, H, T, 1)."""
    decay_BHTT = decays(g_BHT)
    return decay_BHTT, g_BHT.cumsum(-1).exp().unsqueeze(-1), decay_BHTT[..., -1, :].unsqueeze(-1)
