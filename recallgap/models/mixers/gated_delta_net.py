"""Gated DeltaNet (Yang, Kautz and Hatamizadeh 2024, arXiv 2412.06464, section 3; in Qwen3-Next too).

    q, k, v = unit queries and keys, values, after short convolutions       (recallgap/models/delta_heads.py)
    beta    = sigmoid(W_beta x),  g = -exp(A_log) softplus(W_a x + dt_bias)             one a value head
    S_t     = exp(g_t) (I - beta_t k_t k_t^T) S_{t-1} + beta_t k_t v_t^T                o_t = S_t^T q_t
    y       = W_o (RMSNorm_head(o) * SiLU(W_g x))

As the authors' code (NVlabs/GatedDeltaNet): keys of all heads 3/4 as wide as the model and values 3/2, which
makes 6 D^2 weights; projections start as torch's Linear, W_o included, convolutions as its Conv1d, decays as
in recallgap/models/step_decay.py with rates from 0. Unlike it, and as flash-linear-attention and Qwen3-Next,
W_beta has no bias. transformers starts Qwen3-Next with dt_bias = 1, with which nearly every head forgets
within a token: not followed.
Legend: B batch, T position, D width, H value heads, K key width, V value width of a head.
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
from recallgap.models.step_decay import StepDecay

NORM_EPS = 1e-5
LOWEST_RATE = 1e-4
"""The authors draw from 0; not quite, so that the logarithm exists."""


class GatedDeltaNet(nn.Module):
    """y = W_o (RMSNorm(what a fading memory recalls that each token corrects) * SiLU(W_g x))."""

    @dataclass(frozen=True, kw_only=True)
    class Options:
        n_heads: int = 4
        """Heads of queries and keys."""
        n_value_heads: int | None = None
        """Heads of values, beta and decay, H, a multiple of n_heads; None: as many."""
        d_key: int | None = None
        """Width of a head's queries and keys, K; None: 3 D / (4 n_heads)."""
        d_value: int | None = None
        """Width of a head's values, V; None: 3 D / (2 H)."""
        conv_len: int = 4
        """Taps of the short convolutions."""

    def __init__(self, d_model, options, place):  # noqa: ARG002
        super().__init__()
        H = options.n_heads if options.n_value_heads is None else options.n_value_heads
        K, V = options.d_key, options.d_value
        K = heads_of(3 * d_model, 4 * options.n_heads, "gated_delta_net, d_key None") if K is None else K
        V = heads_of(3 * d_model, 2 * H, "gated_delta_net, d_value None") if V is None else V
        self.operation = Operation("gated_delta_net", K, V)
        self.heads = DeltaHeads("gated_delta_net", d_model, options.n_heads, H, K, V, options.conv_len)
        self.beta = nn.Linear(d_model, H, bias=False)
        self.step_size = nn.Linear(d_model, H, bias=False)
        self.decay = StepDecay(H, lowest_rate=LOWEST_RATE)
        self.gate = nn.Linear(d_model, H * V, bias=False)
        self.norm_V = nn.Parameter(torch.empty(V))
        self.out = nn.Linear(H * V, d_model, bias=False)

    def _linears(self):
        return *self.heads.linears(), self.beta, self.step_size, self.gate, self.out

    def init_weights(self):
        for linear in self._linears():
            linear.reset_parameters()
        for module in (*self.heads.convs(), self.decay):
            module.init_weights()
        nn.init.ones_(self.norm_V)

    def forward(self, x_BTD, context):  # noqa: ARG002
        rule = self.operation.kernel(x_BTD) or delta_rule
        return self._finish(rule(*self.heads(x_BTD), *self._rates(x_BTD)), x_BTD)

    def _rates(self, x):
        """beta and g."""
        return wide(self.beta(x)).sigmoid(), self.decay(self.step_size(x))[0]

    def _finish(self, o, x):
        normed = F.rms_norm(o, o.shape[-1:], self.norm_V.to(o.dtype), NORM_EPS).flatten(-2)
        gate = F.silu(self.gate(x))
        return self.out(normed.to(gate.dtype) * gate)

    def start(self, batch_size):
        heads = self.heads
        S_BHKV = wide(self.norm_V).new_zeros(batch_size, heads.H, heads.K, heads.V)
        return heads.start(batch_size) | {"S_BHKV": S_BHKV}

    def step(self, x_BD, state, context):  # noqa: ARG002
        columns, pasts = self.heads.step(x_BD, state)
        o_BHV, S_BHKV = delta_rule_step(state["S_BHKV"], *columns, *self._rates(x_BD))
        return self._finish(o_BHV, x_BD), pasts | {"S_BHKV": S_BHKV}

    def state_size(self, T):  # noqa: ARG002
        return self.heads.state_size() + self.heads.H * self.heads.K * self.heads.V

    def flops(self, T):
        heads = self.heads
        convs = sum(conv.flops(T) for conv in heads.convs())
        return linear_flops(*self._linears()) + convs + delta_rule_flops(T, heads.H, heads.K, heads.V)

    def param_rules(self):
        return self.decay.param_rules() | {"norm": ParamRule()}
