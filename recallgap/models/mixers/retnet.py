"""Retention (Sun et al. 2023, "Retentive Network", arXiv 2307.08621, section 2): attention whose past fades.

    q, k = turned(W_q x), turned(W_k x) / sqrt(E)      in H heads of width E; v = W_v x, of width F = 2 D / H
    o_t  = sum_{s<=t} gamma_h^{t-s} (q_t . k_s) v_s    gamma_h = 1 - 2^{-5-h}, h = 0 .. H - 1
    y    = W_o (SiLU(W_g x) * RMSNorm_head(o))

`turned` rotates the pair of channels (2i, 2i + 1) of position t by the angle t 10000^{-i / (E/2 - 1)}. It is
computed in chunks: as attention within one, by S_t = gamma S_{t-1} + k_t^T v_t, o_t = q_t S_t between them.

As in the authors' code (torchscale, multiscale_retention.py) all decay is in gamma, without the paper's xPos
scale, and the norm has no gain. Left out: that code divides o by two numbers a row, sqrt(sum_s gamma^{t-s})
and max(1, sum_s |score|), to fit it into float16; the norm undoes both, and retention is float32 here. Their
heads have E = 256; H = 4 is our choice, for small widths.
Legend: B batch, T position, C position in a chunk, D width, H heads, E key width, F value width of a head.
"""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from recallgap.errors import ConfigError
from recallgap.models.backends import Operation
from recallgap.models.chunks import heads_first, run
from recallgap.models.mixer import heads_of, wide
from recallgap.models.state_mixers import linear_flops

ANGLE_BASE, CHUNK = 10000.0, 64


class RetNet(nn.Module):
    """y = W_o (SiLU(W_g x) * RMSNorm(sum over the past of gamma^{t-s} (q_t . k_s) v_s))."""

    @dataclass(frozen=True, kw_only=True)
    class Options:
        n_heads: int = 4
        """Heads, H, each with a decay of its own."""
        d_key: int | None = None
        """Width E of a head's queries and keys, even; None: D / H."""
        d_value: int | None = None
        """Width F of a head's values; None: 2 D / H."""
        norm_eps: float = 1e-6
        """Added to the mean square of a head before its root is taken."""

        def __post_init__(self):
            for name, width in (("d_key", self.d_key), ("d_value", self.d_value)):
                if width is not None and width < 1:
                    raise ConfigError(f"retnet: {name} is {width}, but a head needs a width of at least 1")

    def __init__(self, d_model, options, place):  # noqa: ARG002
        super().__init__()
        d_head = heads_of(d_model, options.n_heads, "retnet")
        self.n_heads, self.norm_eps = options.n_heads, options.norm_eps
        self.d_key, self.d_value = options.d_key or d_head, options.d_value or 2 * d_head
        if self.d_key % 2:
            raise ConfigError(f"retnet: the keys of a head are {self.d_key} wide, but channels turn in pairs")
        self.operation = Operation("retnet", self.d_key, self.d_value)
        self.query, self.key = (nn.Linear(d_model, self.n_heads * self.d_key, bias=False) for _ in range(2))
        self.value, self.gate = (
            nn.Linear(d_model, self.n_heads * self.d_value, bias=False) for _ in range(2)
        )
        self.out = nn.Linear(self.n_heads * self.d_value, d_model, bias=False)

    def init_weights(self):
        for linear in (self.query, self.key, self.value, self.gate):
            nn.init.xavier_uniform_(linear.weight, gain=2**-2.5)
        nn.init.xavier_uniform_(self.out.weight, gain=2**-1)

    def forward(self, x_BTD, context):  # noqa: ARG002
        q_BTHE, k_BTHE, v_BTHF = self._project(x_BTD, first=0)
        retain = self.operation.kernel(x_BTD) or retention
        o_BTHF = retain(q_BTHE, k_BTHE, v_BTHF, log_decays(self.n_heads, like=q_BTHE))
        return self._finish(x_BTD, o_BTHF)

    def _project(self, x_BTD, first):
        BTH = (*x_BTD.shape[:2], self.n_heads)
        q_BTHE = turned(wide(self.query(x_BTD)).view(*BTH, self.d_key), first)
        k_BTHE = turned(wide(self.key(x_BTD)).view(*BTH, self.d_key) * self.d_key**-0.5, first)
        return q_BTHE, k_BTHE, wide(self.value(x_BTD)).view(*BTH, self.d_value)

    def _finish(self, x_BTD, o_BTHF):
        gate_BTX = F.silu(self.gate(x_BTD))
        o_BTHF = F.rms_norm(o_BTHF, (self.d_value,), eps=self.norm_eps)
        return self.out(gate_BTX * o_BTHF.flatten(2).to(gate_BTX.dtype))

    def start(self, batch_size):
        zero = wide(self.query.weight.new_zeros(()))
        return {
            "state_BHEF": zero.expand(batch_size, self.n_heads, self.d_key, self.d_value),
            "t_B": zero.expand(batch_size),
        }

    def step(self, x_BD, state, context):  # noqa: ARG002
        q_B1HE, k_B1HE, v_B1HF = self._project(x_BD.unsqueeze(1), first=state["t_B"][0])
        q_BH1E, k_BH1E, v_BH1F = (z.transpose(1, 2) for z in (q_B1HE, k_B1HE, v_B1HF))
        gamma_H11 = log_decays(self.n_heads, like=q_BH1E).exp()[:, None, None]
        state_BHEF = gamma_H11 * state["state_BHEF"] + k_BH1E.mT * v_BH1F
        y_B1D = self._finish(x_BD.unsqueeze(1), (q_BH1E @ state_BHEF).transpose(1, 2))
        return y_B1D.squeeze(1), {"state_BHEF": state_BHEF, "t_B": state["t_B"] + 1}

    def state_size(self, T):  # noqa: ARG002
        return self.n_heads * self.d_key * self.d_value + 1

    def flops(self, T):
        within, between = min(T, CHUNK) * (self.d_key + self.d_value), 2 * self.d_key * self.d_value
        projections = linear_flops(self.query, self.key, self.value, self.gate, self.out)
        return projections + 2 * self.n_heads * (within + between)


def retention(q_BTHE, k_BTHE, v_BTHF, log_gamma_H):
    """o, (B, T, H, F), float32."""
    rule = _Rule(log_gamma_H, min(CHUNK, q_BTHE.shape[1]))
    return run(rule, CHUNK, q_BTHE, k_BTHE, v_BTHF)


def log_decays(n_heads, like):
    """log gamma_h, (H,); float32 or wider: in half precision gamma is 1 from the fifth head on."""
    h_H = torch.arange(n_heads, device=like.device, dtype=torch.float64)
    return torch.log1p(-(2.0 ** (-5 - h_H))).to(like.dtype)


def turned(x_BTHE, first):
    """Each pair of neighbouring channels turned by an angle of its position; x begins at position `first`."""
    T, E = x_BTHE.shape[1], x_BTHE.shape[3]
    like = {"device": x_BTHE.device, "dtype": x_BTHE.dtype}
    speed_P = ANGLE_BASE ** -torch.linspace(0, 1, E // 2, **like)
    angle_T1P = torch.outer(torch.arange(T, **like) + first, speed_P).unsqueeze(1)
    pairs_BTHP = torch.view_as_complex(x_BTHE.unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs_BTHP * torch.polar(torch.ones_like(angle_T1P), angle_T1P)).flatten(-2)


class _Rule:
    """Retention within a chunk and its state; gamma is no parameter, so no gradient goes to it."""

    def __init__(self, log_gamma_H, longest):
        age_C = torch.arange(longest, device=log_gamma_H.device, dtype=log_gamma_H.dtype)
        log_gamma_H11 = log_gamma_H[:, None, None]
        self.inner_HCC = (log_gamma_H11 * (age_C.unsqueeze(1) - age_C)).exp().tril()
        self.from_start_HC1 = (log_gamma_H11 * (age_C.unsqueeze(1) + 1)).exp()
        self.to_end_HC1 = (log_gamma_H11 * (longest - 1 - age_C.unsqueeze(1))).exp()

    def start(self, q_BTHE, k_BTHE, v_BTHF):
        (B, _, H, E), F_ = k_BTHE.shape, v_BTHF.shape[-1]
        return q_BTHE.new_zeros(B, H, E, F_)

    def _chunk(self, *parts_BCHX):
        C = parts_BCHX[0].shape[1]
        decays = self.inner_HCC[:, :C, :C], self.from_start_HC1[:, :C], self.to_end_HC1[:, -C:]
        return *map(heads_first, parts_BCHX), *decays

    def forward(self, S, q, k, v):
        q, k, v, inner, from_start, to_end = self._chunk(q, k, v)
        o = (q @ k.mT).mul_(inner) @ v + (q * from_start) @ S
        return o.transpose(1, 2), (k * to_end).mT @ v + from_start[:, -1:] * S

    def backward(self, S, end, dend, o, do, q, k, v):  # noqa: ARG002
        q, k, v, do, inner, from_start, to_end = self._chunk(q, k, v, do)
        scores, dscores = (q @ k.mT).mul_(inner), (do @ v.mT).mul_(inner)
        dq = dscores @ k + (do @ S.mT).mul_(from_start)
        dk = dscores.mT @ q + (v @ dend.mT).mul_(to_end)
        dv = scores.mT @ do + (k * to_end) @ dend
        dS = (q * from_start).mT @ do + from_start[:, -1:] * dend
        return dS, *(d.transpose(1, 2) for d in (dq, dk, dv))
