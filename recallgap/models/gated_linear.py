"""Linear attention whose state decays by channel, in chunks (arXiv 2312.06635, section 4).

    S_t = diag(a_t) S_{t-1} + k_t v_t^T          o_t = S_t^T q_t

Scores within a chunk are sums over channels of q_t k_s a_{s+1} .. a_t. As products of q_t a_1 .. a_t and
k_s / (a_1 .. a_s) they overflow. Here nothing is divided, whatever the gates: the second half of a block
meets the first with both decayed to the border between them; each half is a block in turn, down to `BASE`
positions, where keys decay step by step. The decays of a block twice as long are those of its halves,
multiplied by what the other half decays. (The paper cuts a chunk into equal parts and takes the exponential
of a difference for each pair and channel within a part: exact as well, and 2.5 times as slow here.)
Legend: B batch, T position, H heads, K key width, V value width; N blocks of L positions.
"""

import torch
from torch.nn import functional as F

from recallgap.models.chunks import heads_first, run, sum_from

CHUNK, BASE = 128, 8


def gated_linear_attention(q_BTHK, k_BTHK, v_BTHV, g_BTHK):
    """Outputs o, (B, T, H, V), float32; g at most 0."""
    T = q_BTHK.shape[1]
    chunk = _chunk(T)
    padding = (0, 0, 0, 0, 0, -T % chunk)
    o_BTHV = run(_Rule, chunk, *(F.pad(x, padding) for x in (q_BTHK, k_BTHK, v_BTHV, g_BTHK)))
    return o_BTHV[:, :T]


def gated_linear_attention_flops(T, H, K, V):
    """Operations a token of the matrix products of `gated_linear_attention`, were there no padding."""
    chunk = _chunk(T)
    return 2 * H * (K * (chunk - BASE) // 2 + V * chunk + 2 * K * V)


def _chunk(T):
    """Positions of a chunk: CHUNK, or BASE times the power of two that T needs."""
    chunk = BASE
    while chunk < min(T, CHUNK):
        chunk *= 2
    return chunk


class _Rule:
    @staticmethod
    def start(_q, k_BTHK, v_BTHV, _g):
        B, _, H, K = k_BTHK.shape
        return v_BTHV.new_zeros(B, H, K, v_BTHV.shape[-1])

    @staticmethod
    def forward(S_BHKV, q, k, v, g):
        q, k, v, a = map(heads_first, (q, k, v, g.exp()))
        borders, from_start, to_end = _decays(a)
        o = (q * from_start) @ S_BHKV + _scores(q, k, a, borders) @ v
        S_BHKV = S_BHKV * from_start[:, :, -1].unsqueeze(-1) + (k * to_end).mT @ v
        return o.transpose(1, 2), S_BHKV

    @staticmethod
    def backward(S_BHKV, end_BHKV, dend_BHKV, _o, do, q, k, v, g):
        q, k, v, a, do = map(heads_first, (q, k, v, g.exp(), do))
        borders, from_start, to_end = _decays(a)
        dq, dk = _scores_backward(do @ v.mT, q, k, a, borders)
        dq.addcmul_(do @ S_BHKV.mT, from_start)
        dk.addcmul_(v @ dend_BHKV.mT, to_end)
        dv = _scores(q, k, a, borders).mT @ do + (k * to_end) @ dend_BHKV
        db = q * dq - k * dk
        db[:, :, -1] += (end_BHKV * dend_BHKV).sum(-1)
        dS_BHKV = dend_BHKV * from_start[:, :, -1].unsqueeze(-1) + (q * from_start).mT @ do
        return dS_BHKV, *(d.transpose(1, 2) for d in (dq, dk, dv, sum_from(db, 2)))


def _decays(a_BHTK):
    """For each length of half a block: it, the decays from the border into the second half and from the first
    half to the border; and for the whole chunk the decays from before it and to its end."""
    from_start, to_end = a_BHTK.clone(), torch.ones_like(a_BHTK)
    borders, half = [], 1
    while half < a_BHTK.shape[2]:
        (first, second), (first_to_end, _) = _halves(from_start, half), _halves(to_end, half)
        of_first, of_second = (x[:, :, :, -1:].clone() for x in (first, second))
        if half >= BASE:
            borders.append((half, second.clone(), first_to_end.clone()))
        second *= of_first
        first_to_end *= of_second
        half *= 2
    return borders, from_start, to_end


def _scores(q_BHTK, k_BHTK, a_BHTK, borders):
    """sum over channels of q_t k_s a_{s+1} .. a_t where s <= t and 0 elsewhere, (B, H, T, T)."""
    T = q_BHTK.shape[2]
    scores_BHTT = q_BHTK.new_zeros(*q_BHTK.shape[:2], T, T)
    base_BHLLN = _blocks(scores_BHTT, BASE)
    q, k, a = (_cut(x, BASE) for x in (q_BHTK, k_BHTK, a_BHTK))
    for distance in range(BASE):
        if distance:
            k = k[:, :, :, :-1] * a[:, :, :, distance:]
        base_BHLLN.diagonal(-distance, 2, 3).copy_((q[:, :, :, distance:] * k).sum(-1))
    for half, late_decay, early_decay in borders:
        late_q, early_k = _halves(q_BHTK, half)[1] * late_decay, _halves(k_BHTK, half)[0] * early_decay
        _corners(scores_BHTT, half).copy_((late_q @ early_k.mT).permute(0, 1, 3, 4, 2))
    return scores_BHTT


def _scores_backward(dscores_BHTT, q_BHTK, k_BHTK, a_BHTK, borders):
    """Gradients of q and k from those of their scores."""
    dq_BHTK, dk_BHTK = torch.empty_like(q_BHTK), torch.empty_like(k_BHTK)
    base_BHLLN = _blocks(dscores_BHTT, BASE)
    q, k, dq, dk, a = (_cut(x, BASE) for x in (q_BHTK, k_BHTK, dq_BHTK, dk_BHTK, a_BHTK))
    torch.mul(k, base_BHLLN.diagonal(0, 2, 3).unsqueeze(-1), out=dq)
    torch.mul(q, base_BHLLN.diagonal(0, 2, 3).unsqueeze(-1), out=dk)
    decay = torch.ones_like(a)
    for distance in range(1, BASE):
        late, early = slice(distance, None), slice(None, -distance)
        decay = decay[:, :, :, :-1] * a[:, :, :, late]
        weight = base_BHLLN.diagonal(-distance, 2, 3).unsqueeze(-1) * decay
        dq[:, :, :, late].addcmul_(k[:, :, :, early], weight)
        dk[:, :, :, early].addcmul_(q[:, :, :, late], weight)
    for half, late_decay, early_decay in borders:
        late_q, early_k = _halves(q_BHTK, half)[1] * late_decay, _halves(k_BHTK, half)[0] * early_decay
        dcorner = _corners(dscores_BHTT, half).permute(0, 1, 4, 2, 3).contiguous()
        _halves(dq_BHTK, half)[1].addcmul_(dcorner @ early_k, late_decay)
        _halves(dk_BHTK, half)[0].addcmul_(dcorner.mT @ late_q, early_decay)
    return dq_BHTK, dk_BHTK


def _cut(x_BHTK, L):
    """Blocks of L positions, (B, H, N, L, K)."""
    return x_BHTK.unflatten(2, (-1, L))


def _halves(x_BHTK, half):
    """First and second halves of blocks, as views."""
    return _cut(x_BHTK, 2 * half).split(half, dim=3)


def _blocks(scores_BHTT, L):
    """The blocks of L positions along the diagonal, (B, H, L, L, N), as a view."""
    return scores_BHTT.unflatten(3, (-1, L)).unflatten(2, (-1, L)).diagonal(dim1=2, dim2=4)


def _corners(scores_BHTT, half):
    """Where second halves of blocks meet first halves, (B, H, L, L, N), as a view."""
    return _blocks(scores_BHTT, 2 * half)[:, :, half:, :half]
