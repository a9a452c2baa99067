"""A matrix state that decays per channel and is erased along one direction a token, in chunks (RWKV-7's).

    u_t = -S_{t-1}^T c_t,   S_t = diag(w_t) S_{t-1} + (a_t c_t) u_t^T + k_t v_t^T,   o_t = S_t^T r_t

(S is key by value, the paper's transposed; its transition is diagonal plus low-rank.) In a chunk, S before it
and S' after, with b_t = log w_1 + .. + log w_t, what is erased depends on what the chunk wrote before:

    X = [-c e^{b - log w}; r e^b]        Y = [a c e^{-b}; k e^{-b}]        P = X Y^T, of the past alone
    U = (1 - P_cc)^{-1} (P_ck V + X_c S)     O = P_r [U; V] + X_r S     S' = e^{b_C} (S + Y^T [U; V])

with the rows and columns of P named by their vectors: rows of c see tokens before their own, those of r also
their own. Substitution is stable where tokens repeat; powers of P_cc, which would invert too, overflow.
RWKV-7 has log w > -0.61, so that e^{-b} stays below e^20 in a chunk of 32: products of it lose no precision.
Legend: B batch, T position, C position in a chunk, H heads, E head width, K key width, V value width.
"""

import torch
from torch.linalg import solve_triangular

from recallgap.models.chunks import heads_first, run, sum_from

CHUNK = 32


def dplr(r_BTHE, log_w_BTHE, k_BTHE, v_BTHE, a_BTHE, c_BTHE):
    """Outputs o, (B, T, H, E), float32; log w in (-1, 0], a in [0, 1], c of length 1."""
    return run(_Rule, CHUNK, r_BTHE, log_w_BTHE, k_BTHE, v_BTHE, a_BTHE, c_BTHE)


def dplr_step(S_BHKV, r_BHE, log_w_BHE, k_BHE, v_BHE, a_BHE, c_BHE):
    """(output, state) of one position, by the recurrence itself."""
    erased_BHV = (c_BHE.unsqueeze(-2) @ S_BHKV).squeeze(-2)
    S_BHKV = log_w_BHE.exp().unsqueeze(-1) * S_BHKV + k_BHE.unsqueeze(-1) * v_BHE.unsqueeze(-2)
    S_BHKV = S_BHKV - (a_BHE * c_BHE).unsqueeze(-1) * erased_BHV.unsqueeze(-2)
    return (r_BHE.unsqueeze(-2) @ S_BHKV).squeeze(-2), S_BHKV


def dplr_flops(T, H, E):
    """Operations a token of the matrix products of `dplr` and of substitution, half a product's."""
    return 2 * H * E * (7.5 * min(T, CHUNK) + 4 * E)


class _Rule:
    @staticmethod
    def start(r_BTHE, *_):
        B, _, H, E = r_BTHE.shape
        return r_BTHE.new_zeros(B, H, E, E)

    @classmethod
    def forward(cls, S, r, log_w, k, v, a, c):
        grow_X, _, _, Y, _, P, XS, UV = cls._chunk(S, *map(heads_first, (r, log_w, k, v, a, c)))
        C = r.shape[1]
        o = P[:, :, C:] @ UV + XS[:, :, C:]
        return o.transpose(1, 2), (S + Y.mT @ UV).mul_(grow_X[:, :, -1:].mT)

    @classmethod
    def backward(cls, S, end, dend, o, do, r, log_w, k, v, a, c):  # noqa: ARG003
        r, log_w, k, v, a, c, do = map(heads_first, (r, log_w, k, v, a, c, do))
        grow_X, grow_Y, X, Y, past, P, _, UV = cls._chunk(S, r, log_w, k, v, a, c)
        C = r.shape[2]
        dsum = dend * grow_X[:, :, -1:].mT
        dUV = P[:, :, C:].mT @ do + Y @ dsum
        dright = solve_triangular(-P[:, :, :C, :C].mT, dUV[:, :, :C], upper=True, unitriangular=True)
        dXS = torch.cat([dright, do], dim=2)
        dP = (dXS @ UV.mT).mul_(past)
        dminus_c, dr = (dP @ Y + dXS @ S.mT).mul_(grow_X).chunk(2, dim=2)
        dac, dk = (dP.mT @ X + UV @ dsum.mT).mul_(grow_Y).chunk(2, dim=2)
        dv = dUV[:, :, C:] + P[:, :, :C, C:].mT @ dright
        db_before = -c * dminus_c
        db = db_before + r * dr - a * c * dac - k * dk
        db[:, :, -1] += (end * dend).sum(-1)
        gradients = dr, sum_from(db, 2) - db_before, dk, dv, c * dac, a * dac - dminus_c
        return X.mT @ dXS + dsum, *(d.transpose(1, 2) for d in gradients)

    @staticmethod
    def _chunk(S, r, log_w, k, v, a, c):
        C, b = r.shape[2], log_w.cumsum(2)
        grow_X, grow_Y = torch.cat([b - log_w, b], dim=2).exp_(), b.neg().exp_().repeat(1, 1, 2, 1)
        X, Y = torch.cat([-c, r], dim=2).mul_(grow_X), torch.cat([a * c, k], dim=2).mul_(grow_Y)
        ones = torch.ones(C, C, dtype=r.dtype, device=r.device)
        past = torch.cat([ones.tril(-1), ones.tril()]).repeat(1, 2)
        P, XS = (X @ Y.mT).mul_(past), X @ S
        right = P[:, :, :C, C:] @ v + XS[:, :, :C]
        U = solve_triangular(-P[:, :, :C, :C], right, upper=False, unitriangular=True)
        return grow_X, grow_Y, X, Y, past, P, XS, torch.cat([U, v], dim=2)
