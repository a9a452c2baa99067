"""DeltaNet (Yang et al. 2024, "Parallelizing Linear Transformers with the Delta Rule", arXiv 2406.06484).

    q, k, v = unit queries and keys, values, after short convolutions       (recallgap/models/delta_heads.py)
    beta    = sigmoid(W_beta x)                                             one a head
    S_t     = (I - beta_t k_t k_t^T) S_{t-1} + beta_t k_t v_t^T             o_t = S_t^T q_t
    y       = W_o RMSNorm_head(o)

What k_t recalls is replaced, by the share beta_t, with v_t. No decay, gate or bias, as the authors' layer has
it by default (flash-linear-attention, fla/layers/delta_net.py), whose 4 heads and 4 taps are ours too.
Projections start Xavier-uniform with gain 2^-2.5, as there until March 2025 (a blanket N(0, 0.02) since).
Legend: B batch, T position, D width, H heads, K key width, V value width of a head.
"""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from recallgap.models.backends import Operation
from recallgap.models.delta_heads import DeltaHeads
from recallgap.models.delta_rule import delta_rule, delta_rule_flops, delta_rule_step
from recallgap.models.mixer import ParamRule, heads_of, wide
from recallgap.models.state_mixers import linear_flops

XAVIER_GAIN = 2**-2.5
NORM_EPS = 1e-5


class DeltaNet(nn.Module):
    """y = W_o RMSNorm(what a memory recalls that each token corrects)."""

    @dataclass(frozen=True, kw_only=True)
    class Options:
        n_heads: int = 4
        """Heads, H."""
        d_key: int | None = None
        """Width of a head's queries and keys, K; None: D / H."""
        d_value: int | None = None
        """Width of a head's values, V; None: D / H."""
        conv_len: int = 4
        """Taps of the short convolutions."""

    def __init__(self, d_model, options, place):  # noqa: ARG002
        super().__init__()
        H = options.n_heads
        K, V = (
            heads_of(d_model, H, "delta_net") if width is None else width
            for width in (options.d_key, options.d_value)
        )
        self.operation = Operation("delta_net", K, V)
        self.heads = DeltaHeads("delta_net", d_model, H, H, K, V, options.conv_len)
        self.beta = nn.Linear(d_model, H, bias=False)
        self.norm_V = nn.Parameter(torch.empty(V))
        self.out = nn.Linear(H * V, d_model, bias=False)

    def _linears(self):
        return *self.heads.linears(), self.beta, self.out

    def init_weights(self):
        for linear in self._linears():
            nn.init.xavier_uniform_(linear.weight, gain=XAVIER_GAIN)
        for conv in self.heads.convs():
            conv.init_weights()
        nn.init.ones_(self.norm_V)

    def forward(self, x_BTD, context):  # noqa: ARG002
        beta_BTH = self.beta(x_BTD)
        rule = self.operation.kernel(x_BTD) or delta_rule
        o_BTHV = rule(*self.heads(x_BTD), wide(beta_BTH).sigmoid())
        return self._finish(o_BTHV, beta_BTH.dtype)

    def _finish(self, o, dtype):
        normed = F.rms_norm(o, o.shape[-1:], self.norm_V.to(o.dtype), NORM_EPS)
        return self.out(normed.flatten(-2).to(dtype))

    def start(self, batch_size):
        heads = self.heads
        S_BHKV = wide(self.norm_V).new_zeros(batch_size, heads.H, heads.K, heads.V)
        return heads.start(batch_size) | {"S_BHKV": S_BHKV}

    def step(self, x_BD, state, context):  # noqa: ARG002
        beta_BH = self.beta(x_BD)
        columns, pasts = self.heads.step(x_BD, state)
        o_BHV, S_BHKV = delta_rule_step(state["S_BHKV"], *columns, wide(beta_BH).sigmoid())
        return self._finish(o_BHV, beta_BH.dtype), pasts | {"S_BHKV": S_BHKV}

    def state_size(self, T):  # noqa: ARG002
        return self.heads.state_size() + self.heads.H * self.heads.K * self.heads.V

    def flops(self, T):
        heads = self.heads
        convs = sum(conv.flops(T) for conv in heads.convs())
        return linear_flops(*self._linears()) + convs + delta_rule_flops(T, heads.H, heads.K, heads.V)

    def param_rules(self):
        return {"norm": ParamRule()}
