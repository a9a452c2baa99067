"""Mamba-2 (Dao and Gu 2024, "Transformers are SSMs", arXiv 2405.21060, sections 6 and 7).

    z, u, a = W_in x                                v, k, q = SiLU(conv_K u)     (the paper's x, B, C)
    dt      = softplus(a + dt_bias)                 g = -exp(A_log) dt           each head
    S_t     = exp(g_t) S_{t-1} + k_t (dt_t v_t)^T   o_t = S_t^T q_t + skip v_t   each head; k, q each group
    y       = W_out RMSNorm(o * SiLU(z))            normalised within each group

As mamba_ssm/modules/mamba2.py, the start included: projections and convolution as torch's Linear and Conv1d,
skip 1, steps and rates as in recallgap/models/step_decay.py, and W_out divided by the root of the number of
residual additions (2 a layer here, since a state mixer follows). Left out are that code's options d_ssm,
D_has_hdim, dt_limit, norm_before_gate, rmsnorm=False and biases of projections.
Legend: B batch, T position, D width, E inner width = H P, H heads of width P in G groups of R, N state width.
"""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from recallgap.errors import ConfigError
from recallgap.models.backends import Operation
from recallgap.models.mixer import ParamRule, wide
from recallgap.models.short_conv import ShortConv
from recallgap.models.ssd import ssd, ssd_flops
from recallgap.models.state_mixers import linear_flops
from recallgap.models.step_decay import StepDecay

NORM_EPS = 1e-5


class Mamba2(nn.Module):
    """y = W_out RMSNorm((selective state-space model of conv(x) + skip) * SiLU(z))."""

    @dataclass(frozen=True, kw_only=True)
    class Options:
        expand: int = 2
        """Inner width E as a multiple of the model's."""
        d_head: int = 64
        """Width of a head, P."""
        d_state: int = 128
        """Numbers of state for each inner channel, N."""
        n_groups: int = 1
        """Groups of heads that share k and q, G."""
        conv_len: int = 4
        """Taps of the short convolution, K."""

        def __post_init__(self):
            if min(self.expand, self.d_head, self.d_state, self.n_groups) < 1:
                raise ConfigError(
                    f"mamba2: expand, d_head, d_state and n_groups are at least 1, but got {self}"
                )

    def __init__(self, d_model, options, place):
        super().__init__()
        self.place, self.d_inner, self.N = place, options.expand * d_model, options.d_state
        n_heads, G = self.d_inner // options.d_head, options.n_groups
        if self.d_inner % options.d_head or n_heads % G:
            raise ConfigError(
                f"mamba2: an inner width of {self.d_inner} is not {G} groups of heads {options.d_head} wide"
            )
        self.heads_GRP = G, n_heads // G, options.d_head
        d_conv = self.d_inner + 2 * G * self.N
        self.operation = Operation("mamba2", self.N, options.d_head)
        self.inner = nn.Linear(d_model, self.d_inner + d_conv + n_heads, bias=False)
        self.conv = ShortConv(d_conv, options.conv_len, bias=True)
        self.decay = StepDecay(n_heads, lowest_rate=1.0)
        self.skip_H = nn.Parameter(torch.empty(n_heads))
        self.norm_E = nn.Parameter(torch.empty(self.d_inner))
        self.out = nn.Linear(self.d_inner, d_model, bias=False)

    def init_weights(self):
        self.inner.reset_parameters()
        self.conv.init_weights()
        self.decay.init_weights()
        nn.init.ones_(self.skip_H)
        nn.init.ones_(self.norm_E)
        bound = (self.d_inner * 2 * self.place.n_layers) ** -0.5
        nn.init.uniform_(self.out.weight, -bound, bound)

    def forward(self, x_BTD, context):  # noqa: ARG002
        z_BTE, u_BTC, a_BTH = self._project(x_BTD)
        v_BTGRP, step_BTGR1, g_BTGR, k_BTGN, q_BTGN = self._recurrence(self.conv(u_BTC), a_BTH)
        scan = self.operation.kernel(x_BTD) or ssd
        return self._finish(scan(v_BTGRP * step_BTGR1, g_BTGR, k_BTGN, q_BTGN), v_BTGRP, z_BTE)

    def _project(self, x):
        return self.inner(x).split([self.d_inner, self.conv.taps_DK.shape[0], self.skip_H.numel()], dim=-1)

    def _recurrence(self, u, a):
        """v, dt, g, k and q, in their heads and groups."""
        G, R, P = self.heads_GRP
        v, k, q = wide(u).split([self.d_inner, G * self.N, G * self.N], dim=-1)
        g, step = self.decay(a)
        v, step, g = v.unflatten(-1, (G, R, P)), step.unflatten(-1, (G, R, 1)), g.unflatten(-1, (G, R))
        return v, step, g, k.unflatten(-1, (G, self.N)), q.unflatten(-1, (G, self.N))

    def _finish(self, o, v, z):
        G, R, _ = self.heads_GRP
        o = torch.addcmul(o, v, wide(self.skip_H).view(G, R, 1))
        gated = o.flatten(-3) * F.silu(wide(z))
        normed = F.rms_norm(gated.unflatten(-1, (G, -1)), (self.d_inner // G,), eps=NORM_EPS).flatten(-2)
        return self.out((normed * self.norm_E).to(z.dtype))

    def start(self, batch_size):
        G, R, P = self.heads_GRP
        S_BGRNP = wide(self.skip_H).new_zeros(batch_size, G, R, self.N, P)
        return {"past_BCK": self.conv.start(batch_size), "S_BGRNP": S_BGRNP}

    def step(self, x_BD, state, context):  # noqa: ARG002
        z_BE, u_BC, a_BH = self._project(x_BD)
        u_BC, past_BCK = self.conv.step(u_BC, state["past_BCK"])
        v_BGRP, step_BGR1, g_BGR, k_BGN, q_BGN = self._recurrence(u_BC, a_BH)
        added_BGRNP = k_BGN[:, :, None, :, None] * (v_BGRP * step_BGR1).unsqueeze(-2)
        S_BGRNP = state["S_BGRNP"] * g_BGR.exp()[..., None, None] + added_BGRNP
        o_BGRP = (q_BGN[:, :, None, None] @ S_BGRNP).squeeze(-2)
        return self._finish(o_BGRP, v_BGRP, z_BE), {"past_BCK": past_BCK, "S_BGRNP": S_BGRNP}

    def state_size(self, T):  # noqa: ARG002
        return self.conv.state_size() + self.d_inner * self.N

    def flops(self, T):
        return linear_flops(self.inner, self.out) + self.conv.flops(T) + ssd_flops(T, *self.heads_GRP, self.N)

    def param_rules(self):
        rules = {"bias": ParamRule(), "skip": ParamRule(), "norm": ParamRule()}
        return self.decay.param_rules() | rules
