"""Gated linear attention (Yang et al. 2023, arXiv 2312.06635, section 4).

    q, k, v = W_q x / sqrt(K), W_k x, W_v x                    in H heads of widths K, K, V
    a       = sigmoid(W_a2 W_a1 x + b_a)^(1 / 16)              for each key channel, W_a1 to 16 numbers
    S_t     = diag(a_t) S_{t-1} + k_t v_t^T,  o_t = S_t^T q_t  for each head
    y       = W_o (RMSNorm_head(o) * SiLU(W_g x))

No feature map and no convolution, as in the paper. As flash-linear-attention's layer (the authors'), the norm
is RMSNorm with one gain for all heads, and W_g has no bias; in the paper and its first code
(berlino/gated_linear_attention) it is LayerNorm without gain, and W_g has one. Projections start
Xavier-uniform with gain 2^-2.5 and b_a at 0, as that layer did until March 2025 (a blanket N(0, 0.02) since;
in the first code W_v, W_g, W_o had that). Gates then start near 0.96, a memory of 24 tokens.
Legend: B batch, T position, D width, H heads, K key width, V value width of a head.
"""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from recallgap.errors import ConfigError
from recallgap.models.backends import Operation
from recallgap.models.gated_linear import gated_linear_attention, gated_linear_attention_flops
from recallgap.models.mixer import ParamRule, heads_of, wide
from recallgap.models.state_mixers import linear_flops

XAVIER_GAIN = 2**-2.5
NORM_EPS = 1e-5


class GLA(nn.Module):
    """y = W_o (RMSNorm(linear attention with a decay for each key channel) * SiLU(W_g x))."""

    @dataclass(frozen=True, kw_only=True)
    class Options:
        n_heads: int = 4
        """Heads, H."""
        d_key: int | None = None
        """Width of a head's queries and keys, K; None: D / (2 H)."""
        d_value: int | None = None
        """Width of a head's values, V; None: D / H."""
        gate_rank: int = 16
        """Numbers through which the gate of all channels is computed."""
        gate_root: float = 16.0
        """Gates are this root of a sigmoid: the larger, the longer the memory."""

        def __post_init__(self):
            if any(size is not None and size < 1 for size in (self.gate_rank, self.d_key, self.d_value)):
                raise ConfigError(f"gla: d_key, d_value and gate_rank are at least 1, but got {self}")
            if not self.gate_root > 0:
                raise ConfigError(f"gla: gate_root is {self.gate_root}, but must be above 0")

    def __init__(self, d_model, options, place):  # noqa: ARG002
        super().__init__()
        self.H, self.gate_root = options.n_heads, options.gate_root
        self.K, self.V = options.d_key, options.d_value
        if self.V is None:
            self.V = heads_of(d_model, self.H, "gla, d_value None")
        if self.K is None:
            self.K = heads_of(d_model, 2 * self.H, "gla, d_key None")
        self.operation = Operation("gla", self.K, self.V)
        self.query = nn.Linear(d_model, self.H * self.K, bias=False)
        self.key = nn.Linear(d_model, self.H * self.K, bias=False)
        self.value = nn.Linear(d_model, self.H * self.V, bias=False)
        self.decay_in = nn.Linear(d_model, options.gate_rank, bias=False)
        self.decay_out = nn.Linear(options.gate_rank, self.H * self.K)
        self.gate = nn.Linear(d_model, self.H * self.V, bias=False)
        self.norm_V = nn.Parameter(torch.empty(self.V))
        self.out = nn.Linear(self.H * self.V, d_model, bias=False)

    def _linears(self):
        return self.query, self.key, self.value, self.decay_in, self.decay_out, self.gate, self.out

    def init_weights(self):
        for linear in self._linears():
            nn.init.xavier_uniform_(linear.weight, gain=XAVIER_GAIN)
        nn.init.zeros_(self.decay_out.bias)
        nn.init.ones_(self.norm_V)

    def forward(self, x_BTD, context):  # noqa: ARG002
        attend = self.operation.kernel(x_BTD) or gated_linear_attention
        return self._finish(attend(*self._project(x_BTD)), x_BTD)

    def _project(self, x):
        """q, k, v and log gates, in heads."""
        q, k, v = self.query(x) * self.K**-0.5, self.key(x), self.value(x)
        g = F.logsigmoid(wide(self.decay_out(self.decay_in(x)))) / self.gate_root
        return [wide(z).unflatten(-1, (self.H, -1)) for z in (q, k, v, g)]

    def _finish(self, o, x):
        normed = F.rms_norm(o, (self.V,), self.norm_V.to(o.dtype), NORM_EPS).flatten(-2)
        gate = F.silu(self.gate(x))
        return self.out(normed.to(gate.dtype) * gate)

    def start(self, batch_size):
        return {"S_BHKV": wide(self.norm_V).new_zeros(batch_size, self.H, self.K, self.V)}

    def step(self, x_BD, state, context):  # noqa: ARG002
        q_BHK, k_BHK, v_BHV, g_BHK = self._project(x_BD)
        S_BHKV = state["S_BHKV"] * g_BHK.exp().unsqueeze(-1) + k_BHK.unsqueeze(-1) * v_BHV.unsqueeze(-2)
        o_BHV = (q_BHK.unsqueeze(-2) @ S_BHKV).squeeze(-2)
        return self._finish(o_BHV, x_BD), {"S_BHKV": S_BHKV}

    def state_size(self, T):  # noqa: ARG002
        return self.H * self.K * self.V

    def flops(self, T):
        return linear_flops(*self._linears()) + gated_linear_attention_flops(T, self.H, self.K, self.V)

    def param_rules(self):
        return {"bias": ParamRule(), "norm": ParamRule()}
