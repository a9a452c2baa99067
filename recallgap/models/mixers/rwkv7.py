"""RWKV-7 time mix (Peng et al. 2025, arXiv 2503.14456): a state that tokens fade, erase from and write to.

    r, k, v = W_r x^r, W_k x^k, W_v x^v           x^._t = x_t + m. (x_{t-1} - x_t), m. learned per channel
    w  = exp(-e^{-1/2} sigmoid(L_w x^w))          decay per channel, in (0.545, 1)
    a  = sigmoid(L_a x^a),  g = L_g x^g           learning rate per channel; output gate
    v  = v + (v_first - v) sigmoid(L_v x^v)       v_first: the values of the model's first layer
    c  = k xi / |k xi|,  k~ = k (1 + (a - 1) alpha)           xi, alpha learned per channel; norm per head
    S_t = S_{t-1} (diag(w_t) - c_t (a_t c_t)^T) + v_t k~_t^T,  o_t = S_t r_t     in H heads of width E
    y  = W_o (g * (GroupNorm(o) + (r . (rho k~)) v))          rho learned per channel

L. are of low rank, f(x A) B + base: f is tanh in L_w, sigmoid in L_g (without base), the identity elsewhere.
Formulae, ranks, initial values and the norm's eps of 1e-5 E: RWKV-LM, RWKV-v7/train_temp/src/model.py; but a
model's only layer counts as its first, where that code divides by zero. (The layer in flash-linear-attention
draws W_o anew after setting it to zero.) The first layer hands its values on through `context.shared`.
Legend: B batch, T position, D width, H heads, E head width, R rank.
"""

import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from recallgap.errors import ConfigError
from recallgap.models.backends import Operation
from recallgap.models.dplr import dplr, dplr_flops, dplr_step
from recallgap.models.mixer import ParamRule, fill_, wide
from recallgap.models.state_mixers import linear_flops

SHARED = "rwkv7_values"
MIXES = ("receptance", "decay", "key", "value", "rate", "gate")


class RWKV7(nn.Module):
    """y = W_o (g * (GroupNorm(S r) + (r . (rho k~)) v)), with a matrix S per head for a state."""

    @dataclass(frozen=True, kw_only=True)
    class Options:
        d_head: int = 64
        """Width of a head, E."""
        value_residual: bool | None = None
        """Mix in the values of the last rwkv7 layer before that has this off. None: in each but the model's
        first layer; where that is another mixer, set it to False in the first rwkv7 layer."""

        def __post_init__(self):
            if self.d_head < 2:
                raise ConfigError(f"rwkv7: d_head is {self.d_head}, but a head needs a width of at least 2")

    def __init__(self, d_model, options, place):
        super().__init__()
        if d_model % options.d_head:
            raise ConfigError(f"rwkv7: heads of width {options.d_head} do not divide a width of {d_model}")
        self.d_head, self.n_heads, self.place = options.d_head, d_model // options.d_head, place
        self.operation = Operation("rwkv7", self.d_head, self.d_head)
        self.value_residual = place.layer > 0 if options.value_residual is None else options.value_residual
        self.mix_6D = nn.Parameter(torch.empty(len(MIXES), d_model))
        self.receptance, self.key, self.value, self.out = (
            nn.Linear(d_model, d_model, bias=False) for _ in range(4)
        )
        self.decay = LowRank(d_model, rank(2.5, d_model))
        self.rate = LowRank(d_model, rank(2.5, d_model))
        self.gate = LowRank(d_model, rank(5, d_model), base=False)
        self.residual = LowRank(d_model, rank(1.7, d_model)) if self.value_residual else None
        self.erased_D, self.boost_D = (nn.Parameter(torch.empty(d_model)) for _ in range(2))
        self.bonus_HE = nn.Parameter(torch.empty(self.n_heads, self.d_head))
        self.norm = nn.GroupNorm(self.n_heads, d_model, eps=1e-5 * self.d_head)

    def init_weights(self):
        layer, n_layers, D, E = self.place.layer, self.place.n_layers, self.boost_D.numel(), self.d_head
        depth, depth_left = layer / max(n_layers - 1, 1), 1 - layer / n_layers
        d_D = torch.arange(D, dtype=torch.float64, device=self.boost_D.device)
        powers_6 = torch.tensor([0.2, 0.9, 0.7, 0.7, 0.9, 0.2], dtype=torch.float64, device=d_D.device)
        fill_(self.mix_6D, 1 - (d_D / D) ** (depth_left * powers_6).unsqueeze(1))
        linear_D = d_D / (D - 1) - 0.5
        zigzag_D = 2 * (d_D % E) / (E - 1) - 1
        zigzag_D = zigzag_D * zigzag_D.abs()
        fill_(self.decay.base, -5.5 + 6 * (d_D / (D - 1)) ** (1 + depth**0.3) + 2.5 * zigzag_D)
        fill_(self.rate.base, -0.19 + 0.3 * zigzag_D + 0.4 * linear_D)
        fill_(self.erased_D, 0.71 - 0.1 * linear_D)
        nn.init.constant_(self.boost_D, 1.02)
        nn.init.constant_(self.bonus_HE, -0.04)
        low_ranks = [self.decay, self.rate, self.gate]
        if self.value_residual:
            fill_(self.residual.base, 0.73 - 0.4 * linear_D)
            low_ranks.append(self.residual)
        for low_rank in low_ranks:
            nn.init.zeros_(low_rank.down)
            nn.init.orthogonal_(low_rank.up, gain=0.1 * max(1, low_rank.up.shape[0] / D) ** 0.5)
        nn.init.orthogonal_(self.receptance.weight)
        nn.init.orthogonal_(self.key.weight, gain=0.1)
        nn.init.orthogonal_(self.value.weight)
        nn.init.zeros_(self.out.weight)
        nn.init.constant_(self.norm.weight, ((layer + 1) / n_layers) ** 0.7)
        nn.init.zeros_(self.norm.bias)

    def forward(self, x_BTD, context):
        *tokens, gate_BTD = self._project(x_BTD, F.pad(x_BTD, (0, 0, 1, -1)), context)
        rule = self.operation.kernel(x_BTD) or dplr
        return self._finish(rule(*tokens), *tokens, gate_BTD)

    def _project(self, x_BTD, previous_BTD, context):
        """r, log w, k~, v, a and c, (B, T, H, E), and the gate, (B, T, D)."""
        mixes_6D = self.mix_6D.to(x_BTD.dtype)
        x_r, x_w, x_k, x_v, x_a, x_g = (torch.lerp(x_BTD, previous_BTD, mix_D) for mix_D in mixes_6D)
        k_BTD, v_BTD = wide(self.key(x_k)), wide(self.value(x_v))
        if self.residual is None:
            context.shared[SHARED] = v_BTD
        else:
            v_BTD = v_BTD + (self._first_values(context) - v_BTD) * torch.sigmoid(wide(self.residual(x_v)))
        log_w_BTD = -math.exp(-0.5) * torch.sigmoid(wide(self.decay(x_w, torch.tanh)))
        a_BTD = torch.sigmoid(wide(self.rate(x_a)))
        c_BTHE = F.normalize(self._heads(k_BTD * self.erased_D), dim=-1)
        k_BTD = k_BTD * (1 + (a_BTD - 1) * self.boost_D)
        tokens = (wide(self.receptance(x_r)), log_w_BTD, k_BTD, v_BTD, a_BTD)
        return *map(self._heads, tokens), c_BTHE, self.gate(x_g, torch.sigmoid)

    def _first_values(self, context):
        if SHARED not in context.shared:
            raise ConfigError(
                f"rwkv7 in layer {self.place.layer} mixes in the values of an earlier rwkv7 layer, but "
                "there is none: set value_residual=False in the first one"
            )
        return context.shared[SHARED]

    def _heads(self, x_BTD):
        return x_BTD.unflatten(-1, (self.n_heads, self.d_head))

    def _finish(self, o_BTHE, r, log_w, k, v, a, c, gate_BTD):  # noqa: ARG002
        bonus_BTH1 = (r * k * self.bonus_HE).sum(-1, keepdim=True)
        gain_D, offset_D = wide(self.norm.weight), wide(self.norm.bias)
        o_XD = F.group_norm(o_BTHE.flatten(0, 1).flatten(1), self.n_heads, gain_D, offset_D, self.norm.eps)
        o_BTD = o_XD.view(gate_BTD.shape) + (bonus_BTH1 * v).flatten(2)
        return self.out(o_BTD.to(gate_BTD.dtype) * gate_BTD)

    def start(self, batch_size):
        zero = self.boost_D.new_zeros(())
        H, E = self.n_heads, self.d_head
        return {
            "previous_BD": zero.expand(batch_size, H * E),
            "state_BHKV": wide(zero).expand(batch_size, H, E, E),
        }

    def step(self, x_BD, state, context):
        *tokens, gate_B1D = self._project(x_BD.unsqueeze(1), state["previous_BD"].unsqueeze(1), context)
        o_BHE, S_BHKV = dplr_step(state["state_BHKV"], *(x_B1HE.squeeze(1) for x_B1HE in tokens))
        y_B1D = self._finish(o_BHE.unsqueeze(1), *tokens, gate_B1D)
        return y_B1D.squeeze(1), {"previous_BD": x_BD, "state_BHKV": S_BHKV}

    def state_size(self, T):  # noqa: ARG002
        return self.boost_D.numel() * (1 + self.d_head)

    def flops(self, T):
        projections = linear_flops(self.receptance, self.key, self.value, self.out)
        low_ranks = [x for x in (self.decay, self.rate, self.gate, self.residual) if x is not None]
        projections += sum(2 * (x.down.numel() + x.up.numel()) for x in low_ranks)
        return projections + dplr_flops(T, self.n_heads, self.d_head)

    def param_rules(self):
        """The four square matrices alone decay."""
        vectors = ("mix_6D", "rate.base", "residual.base", "erased_D", "boost_D", "bonus_HE", "norm.")
        return {"decay.base": ParamRule(lr_scale=2.0)} | dict.fromkeys(
            (*vectors, ".down", ".up"), ParamRule()
        )


def rank(factor, d_model):
    """The rank that RWKV-LM suggests: factor sqrt(D), rounded to a multiple of 32 and at least 32."""
    return max(32, round(factor * d_model**0.5 / 32) * 32)


class LowRank(nn.Module):
    """f(x down) up + base."""

    def __init__(self, d_model, rank, *, base=True):
        super().__init__()
        self.down = nn.Parameter(torch.empty(d_model, rank))
        self.up = nn.Parameter(torch.empty(rank, d_model))
        self.base = nn.Parameter(torch.empty(d_model)) if base else None

    def forward(self, x_BTD, f=None):
        inner_BTR = x_BTD @ self.down
        y_BTD = (inner_BTR if f is None else f(inner_BTR)) @ self.up
        return y_BTD if self.base is None else y_BTD + self.base
