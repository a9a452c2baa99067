"""RWKV-4 time mix (Peng et al. 2023, arXiv 2305.13048, section 3.1): a mean of the past, decaying in time.

    r, k, v = W_r x^r, W_k x^k, W_v x^v        x^._t = m. x_t + (1 - m.) x_{t-1}, m. learned per channel
    wkv_t   = (sum_{i<t} e^{k_i - (t-1-i) w} v_i + e^{k_t + u} v_t) / (the same without v)       w = e^decay
    y_t     = W_o (sigmoid(r_t) * wkv_t)

Held is what the sums mean, which cannot overflow and loses nothing however large k is: L_t, the logarithm of
the past's denominator, and h_t, the weighted mean of its values:

    L_t   = logaddexp(L_{t-1} - w, k_t)        h_t = lerp(h_{t-1}, v_t, f_t),  f_t = e^{k_t - L_t}
    wkv_t = lerp(h_{t-1}, v_t, s_t)            s_t = sigmoid(k_t + u - L_{t-1})

The published kernel holds numerator, denominator and a running maximum (RWKV-LM, RWKV-v4/cuda) instead.
Initialised as in RWKV-LM's RWKV-v4/src/model.py, except that a model's only layer counts as its first, where
that code divides by zero. Left to the model: that code's tiny embedding with a norm of its own.
On a GPU the scan is T short launches a layer; there is no fused kernel.
Legend: B batch, T position, D width.
"""

import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from recallgap.models.mixer import ParamRule, fill_, wide
from recallgap.models.state_mixers import linear_flops


class RWKV(nn.Module):
    """y = W_o (sigmoid(r) * wkv), wkv a mean of the values, weighted by e^k and decaying in time."""

    @dataclass(frozen=True, kw_only=True)
    class Options:
        pass

    def __init__(self, d_model, options, place):  # noqa: ARG002
        super().__init__()
        self.place = place
        self.mix_key, self.mix_value, self.mix_receptance, self.decay, self.bonus = (
            nn.Parameter(torch.empty(d_model)) for _ in range(5)
        )
        self.key, self.value, self.receptance, self.out = (
            nn.Linear(d_model, d_model, bias=False) for _ in range(4)
        )

    def init_weights(self):
        D = self.decay.numel()
        depth = self.place.layer / max(self.place.n_layers - 1, 1)
        depth_left = 1 - self.place.layer / self.place.n_layers
        channel_D = torch.arange(D, dtype=torch.float64, device=self.decay.device)
        fill_(self.mix_key, (channel_D / D) ** depth_left)
        fill_(self.mix_value, (channel_D / D) ** depth_left + 0.3 * depth)
        fill_(self.mix_receptance, (channel_D / D) ** (0.5 * depth_left))
        fill_(self.decay, -5 + 8 * (channel_D / max(D - 1, 1)) ** (0.7 + 1.3 * depth))
        fill_(self.bonus, math.log(0.3) + 0.5 * ((channel_D + 1) % 3 - 1))
        nn.init.orthogonal_(self.value.weight)
        for linear in (self.key, self.receptance, self.out):
            nn.init.zeros_(linear.weight)

    def forward(self, x_BTD, context):  # noqa: ARG002
        x_TBD = x_BTD.transpose(0, 1).contiguous()
        k_TBD, v_TBD, r_TBD = self._project(x_TBD, F.pad(x_TBD, (0, 0, 0, 0, 1, -1)))
        wkv_TBD = wkv(wide(self.decay).exp(), wide(self.bonus), wide(k_TBD), wide(v_TBD))
        return self.out(torch.sigmoid(r_TBD) * wkv_TBD.to(r_TBD.dtype)).transpose(0, 1)

    def _project(self, x, previous):
        mixes = (self.mix_key, self.mix_value, self.mix_receptance)
        x_key, x_value, x_receptance = (torch.lerp(previous, x, mix.to(x.dtype)) for mix in mixes)
        return self.key(x_key), self.value(x_value), self.receptance(x_receptance)

    def start(self, batch_size):
        zero_BD = self.decay.new_zeros(batch_size, self.decay.numel())
        log_weight_BD = wide(zero_BD) - math.inf
        return {"previous_BD": zero_BD, "log_weight_BD": log_weight_BD, "mean_BD": wide(zero_BD)}

    def step(self, x_BD, state, context):  # noqa: ARG002
        k_BD, v_BD, r_BD = self._project(x_BD, state["previous_BD"])
        k_BD, v_BD, r_BD = wide(k_BD), wide(v_BD), torch.sigmoid(r_BD)
        L_BD, h_BD, w_D = state["log_weight_BD"], state["mean_BD"], wide(self.decay).exp()
        wkv_BD = torch.lerp(h_BD, v_BD, torch.sigmoid(k_BD + wide(self.bonus) - L_BD))
        state = {
            "previous_BD": x_BD,
            "log_weight_BD": torch.logaddexp(L_BD - w_D, k_BD),
            "mean_BD": torch.lerp(h_BD, v_BD, torch.sigmoid(k_BD + w_D - L_BD)),
        }
        return self.out(r_BD * wkv_BD.to(r_BD.dtype)), state

    def state_size(self, T):  # noqa: ARG002
        return 3 * self.decay.numel()

    def flops(self, T):  # noqa: ARG002
        return linear_flops(self.key, self.value, self.receptance, self.out)

    def param_rules(self):
        return {"mix_": ParamRule(), "decay": ParamRule(), "bonus": ParamRule()}


@torch.compiler.disable
def wkv(w_D, u_D, k_TBD, v_TBD):
    """The means wkv (T, B, D) of the values; w > 0 the decay a step, u the bonus of the present token."""
    return _WKV.apply(w_D, u_D, k_TBD, v_TBD)


class _WKV(torch.autograd.Function):
    """A loop over time of one to three operations a step; all else runs over the whole context at once.

    Backward: the gradients of the past's numerator and denominator at t, times e^{L_t}, are a pair c_t with
    c_t = (1 - f_{t+1}) c_{t+1} + (1 - s_{t+1}) dwkv_{t+1} (1, -wkv_{t+1}); 1 - f_t = e^{L_{t-1} - w - L_t}.
    Nothing in it can overflow either.
    """

    @staticmethod
    def forward(ctx, w_D, u_D, k_TBD, v_TBD):
        log_weight_TBD = torch.empty_like(k_TBD)
        L_BD = torch.full_like(k_TBD[0], -math.inf)
        for k_BD, out_BD in zip(k_TBD, log_weight_TBD, strict=True):
            L_BD = torch.logaddexp(L_BD - w_D, k_BD, out=out_BD)
        f_TBD, s_TBD = torch.empty_like(k_TBD), torch.empty_like(k_TBD)
        f_TBD[0] = s_TBD[0] = 1
        over_past_TBD = torch.sub(k_TBD[1:], log_weight_TBD[:-1], out=log_weight_TBD[:-1])
        torch.add(over_past_TBD, w_D, out=f_TBD[1:]).sigmoid_()
        torch.add(over_past_TBD, u_D, out=s_TBD[1:]).sigmoid_()
        h_BD, mean_TBD = torch.zeros_like(k_TBD[0]), log_weight_TBD  # its memory: it is not needed any more
        for v_BD, f_BD, out_BD in zip(v_TBD, f_TBD, mean_TBD, strict=True):
            h_BD = torch.lerp(h_BD, v_BD, f_BD, out=out_BD)
        wkv_TBD = torch.empty_like(v_TBD)
        wkv_TBD[0] = v_TBD[0]
        torch.lerp(mean_TBD[:-1], v_TBD[1:], s_TBD[1:], out=wkv_TBD[1:])
        ctx.save_for_backward(f_TBD, s_TBD, mean_TBD, v_TBD, wkv_TBD)
        return wkv_TBD

    @staticmethod
    @once_differentiable
    def backward(ctx, dwkv_TBD):
        f_TBD, s_TBD, mean_TBD, v_TBD, wkv_TBD = ctx.saved_tensors
        T = len(f_TBD)
        keep_TBD, direct_TBD = 1 - f_TBD, s_TBD * dwkv_TBD
        into_past_T2BD = f_TBD.new_empty(T, 2, *f_TBD.shape[1:])
        torch.sub(dwkv_TBD, direct_TBD, out=into_past_T2BD[:, 0])
        torch.mul(into_past_T2BD[:, 0], wkv_TBD, out=into_past_T2BD[:, 1]).neg_()
        c_T2BD = torch.empty_like(into_past_T2BD)
        c_T2BD[-1] = 0
        for t in range(T - 2, -1, -1):
            torch.addcmul(into_past_T2BD[t + 1], keep_TBD[t + 1], c_T2BD[t + 1], out=c_T2BD[t])
        dnumerator_TBD, ddenominator_TBD = c_T2BD.unbind(1)
        dv_TBD = torch.addcmul(direct_TBD, f_TBD, dnumerator_TBD)
        direct_TBD.mul_(v_TBD - wkv_TBD)
        du_D = direct_TBD.sum((0, 1))
        dk_TBD = direct_TBD.addcmul_(f_TBD, torch.addcmul(ddenominator_TBD, dnumerator_TBD, v_TBD))
        through_TBD = torch.addcmul(ddenominator_TBD[1:], dnumerator_TBD[1:], mean_TBD[:-1])
        return -through_TBD.mul_(keep_TBD[1:]).sum((0, 1)), du_D, dk_TBD, dv_TBD
