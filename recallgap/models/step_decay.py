"""Decay by a step: how Mamba-2 and Gated DeltaNet turn an input into a log decay for each head.

    dt = softplus(a + dt_bias)          g = -exp(A_log) dt

(Mamba, arXiv 2312.00752, section 3.6; Mamba-2's code, mamba_ssm/modules/mamba2.py.) At the start steps dt are
log-uniform in [0.001, 0.1], through dt_bias, and rates exp(A_log) uniform up to 16: memories of one token to
a thousand. Much depends on this start: fla's comparison of mixers changed when its PR 739 restored it.
Legend: B batch, T position, H heads.
"""

import math

import torch
from torch import nn
from torch.nn import functional as F

from recallgap.models.mixer import ParamRule, fill_, wide

STEPS = 0.001, 0.1
HIGHEST_RATE = 16.0


class StepDecay(nn.Module):
    """Log decays and steps of each head from a projection of the input; float32, without weight decay."""

    def __init__(self, n_heads, lowest_rate):
        super().__init__()
        self.lowest_rate = lowest_rate
        self.A_log_H = nn.Parameter(torch.empty(n_heads))
        self.dt_bias_H = nn.Parameter(torch.empty(n_heads))

    def init_weights(self):
        rate_H = torch.empty_like(self.A_log_H).uniform_(self.lowest_rate, HIGHEST_RATE)
        step_H = torch.empty_like(self.dt_bias_H).uniform_(*map(math.log, STEPS)).exp()
        fill_(self.A_log_H, rate_H.log())
        fill_(self.dt_bias_H, step_H + torch.log(-torch.expm1(-step_H)))

    def forward(self, a_BTH):
        """(g, dt), the log decays and the steps."""
        step_BTH = F.softplus(wide(a_BTH) + wide(self.dt_bias_H))
        return -wide(self.A_log_H).exp() * step_BTH, step_BTH

    @staticmethod
    def param_rules():
        return {"A_log": ParamRule(), "dt_bias": ParamRule()}
