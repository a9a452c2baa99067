"""The state-space dual: linear attention whose state decays by one number a head (arXiv 2405.21060).

    S_t = exp(g_t) S_{t-1} + k_t v_t^T          o_t = S_t^T q_t

In Mamba-2's letters v = dt x, g = dt A, k = B, q = C (section 7). Heads of a group share k and q.
Within a chunk o = (q k^T * decay) v, as in section 6; from the state before it o = exp(b) q S.
Legend: B batch, T position, G groups, R heads of a group, P head width, N state width, E = R P.
"""

import torch

from recallgap.models.chunks import decays, run, sum_from

CHUNK = 64


def ssd(v_BTGRP, g_BTGR, k_BTGN, q_BTGN):
    """Outputs o, (B, T, G, R, P), float32; g at most 0."""
    return run(_Rule, CHUNK, v_BTGRP, g_BTGR, k_BTGN, q_BTGN)


def ssd_flops(T, G, R, P, N):
    """Operations a token of the matrix products of `ssd`."""
    L = min(T, CHUNK)
    return 2 * G * (L * N + R * P * (L + 2 * N))


class _Rule:
    @staticmethod
    def start(v_BTGRP, _g, k_BTGN, _q):
        B, _, G, R, P = v_BTGRP.shape
        return v_BTGRP.new_zeros(B, G, k_BTGN.shape[-1], R * P)

    @staticmethod
    def forward(S_BGNE, v_BTGRP, g_BTGR, k_BTGN, q_BTGN):
        decay_BGRTT, from_start, to_end = _decays(g_BTGR)
        k_BGTN, q_BGTN = k_BTGN.transpose(1, 2), q_BTGN.transpose(1, 2)
        mixing_BGRTT = decay_BGRTT.mul_((q_BGTN @ k_BGTN.mT).unsqueeze(2))
        o_BTGRP = (mixing_BGRTT @ v_BTGRP.permute(0, 2, 3, 1, 4)).permute(0, 3, 1, 2, 4)
        o_BTGRP = torch.addcmul(o_BTGRP, _split(q_BGTN @ S_BGNE, v_BTGRP), from_start)
        added_BGNE = k_BGTN.mT @ _joined(v_BTGRP * to_end)
        return o_BTGRP, torch.addcmul(added_BGNE, S_BGNE, _spread(from_start, v_BTGRP))

    @staticmethod
    def backward(S_BGNE, end_BGNE, dend_BGNE, o_BTGRP, do_BTGRP, v_BTGRP, g_BTGR, k_BTGN, q_BTGN):
        decay_BGRTT, from_start, to_end = _decays(g_BTGR)
        k_BGTN, q_BGTN = k_BTGN.transpose(1, 2), q_BTGN.transpose(1, 2)
        do_BGRTP = do_BTGRP.permute(0, 2, 3, 1, 4).contiguous()
        mixing_BGRTT = decay_BGRTT * (q_BGTN @ k_BGTN.mT).unsqueeze(2)
        dmixing_BGRTT = do_BGRTP @ v_BTGRP.permute(0, 2, 3, 4, 1)
        dscores_BGTT = dmixing_BGRTT.mul_(decay_BGRTT).sum(2)
        dv_BTGRP = (mixing_BGRTT.mT @ do_BGRTP).permute(0, 3, 1, 2, 4)
        dv_BTGRP = torch.addcmul(dv_BTGRP, _split(k_BGTN @ dend_BGNE, v_BTGRP), to_end)
        read_BGTE = _joined(do_BTGRP * from_start)
        dq_BGTN = dscores_BGTT @ k_BGTN + read_BGTE @ S_BGNE.mT
        dk_BGTN = dscores_BGTT.mT @ q_BGTN + _joined(v_BTGRP * to_end) @ dend_BGNE.mT
        db_BTGR = (o_BTGRP * do_BTGRP).sum(-1) - (v_BTGRP * dv_BTGRP).sum(-1)
        db_BTGR[:, -1] += (end_BGNE * dend_BGNE).sum(2).view_as(v_BTGRP[:, 0]).sum(-1)
        dS_BGNE = torch.addcmul(q_BGTN.mT @ read_BGTE, dend_BGNE, _spread(from_start, v_BTGRP))
        return dS_BGNE, dv_BTGRP, sum_from(db_BTGR, 1), dk_BGTN.transpose(1, 2), dq_BGTN.transpose(1, 2)


def _decays(g_BTGR):
    """Decays within the chunk (B, G, R, T, T), from before it and to its end (B, T, G, R, 1)."""
    decay_BGRTT = decays(g_BTGR.permute(0, 2, 3, 1))
    to_end_BTGR = decay_BGRTT[..., -1, :].permute(0, 3, 1, 2).clone()
    return decay_BGRTT, g_BTGR.cumsum(1).exp().unsqueeze(-1), to_end_BTGR.unsqueeze(-1)


def _joined(x_BTGRP):
    """The heads of a group side by side, (B, G, T, R P)."""
    return x_BTGRP.transpose(1, 2).flatten(3)


def _split(x_BGTE, like_BTGRP):
    return x_BGTE.transpose(1, 2).view_as(like_BTGRP)


def _spread(from_start, like_BTGRP):
    """The decay of the whole chunk for each column of the state, (B, G, 1, R P)."""
    return from_start[:, -1].expand_as(like_BTGRP[:, -1]).flatten(2).unsqueeze(2)
