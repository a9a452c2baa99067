"""BaseConv: a linear gate times a causal convolution (Zoology, arXiv 2312.04927, Definition 4.1).

    y = (x W + b1) * (h conv x + b2)         W (D, D); h, per channel, causal

Filters: `kernel_len` = K explicit taps; `kernel_len` = None a filter as long as the context, explicit (free
taps) or implicit (an MLP of the position, as in Hyena's simplest form).
The paper alternates short and long filters ([3, long, 3, long] in its MQAR experiments).

Differs from the authors' layer (zoology/mixers/base_conv.py and convolution.py): it adds its input inside
the mixer, once more inside its FFT, and gives long filters no b2; here the residual is the block's. Free
long filters start there at N(0, 1), whose sums grow with the context; here like short ones, within 1/sqrt(K).
Its implicit filter sees cos and sin of 1e-4 of a period, all but constant; ours of one period. Linear layers
start as torch's, as in its layer; its language model then overwrites them with N(0, 0.02).
Legend: B batch, T position, D width, K filter length.
"""

from dataclasses import dataclass

import torch
from torch import nn

from recallgap.errors import ConfigError
from recallgap.models.backends import Operation
from recallgap.models.convolution import causal_conv, conv_flops, conv_step
from recallgap.models.mixer import ParamRule
from recallgap.models.state_mixers import linear_flops

D_POSITION, D_FILTER = 3, 16


class BaseConv(nn.Module):
    """y = (x W + b1) * (h conv x + b2)."""

    @dataclass(frozen=True, kw_only=True)
    class Options:
        kernel_len: int | None = 3
        """Taps of the filter, K; None: as many as the context is long."""
        implicit: bool = False
        """A long filter is the output of an MLP of the position instead of free taps."""

        def __post_init__(self):
            if self.kernel_len is not None and self.kernel_len < 1:
                raise ConfigError(
                    f"base_conv: kernel_len is {self.kernel_len}, but a filter needs at least 1 tap"
                )
            if self.implicit and self.kernel_len is not None:
                raise ConfigError(
                    "base_conv: an implicit filter is as long as the context: leave kernel_len None"
                )

    def __init__(self, d_model, options, place):
        super().__init__()
        self.K = options.kernel_len or place.context_len
        self.operation = Operation("short_conv", self.K)
        self.gate = nn.Linear(d_model, d_model)
        self.implicit = options.implicit
        if options.implicit:
            self.filter = nn.Sequential(
                nn.Linear(D_POSITION, D_FILTER), nn.ReLU(), nn.Linear(D_FILTER, d_model)
            )
        else:
            self.taps_DK = nn.Parameter(torch.empty(d_model, self.K))
        self.bias_D = nn.Parameter(torch.empty(d_model))

    def init_weights(self):
        layers = [self.gate, self.filter[0], self.filter[2]] if self.implicit else [self.gate]
        for layer in layers:
            layer.reset_parameters()
        if not self.implicit:
            bound = self.K**-0.5
            nn.init.uniform_(self.taps_DK, -bound, bound)
        nn.init.uniform_(self.bias_D, -(self.K**-0.5), self.K**-0.5)

    def forward(self, x_BTD, context):  # noqa: ARG002
        conv = self.operation.kernel(x_BTD) or causal_conv
        conv_BDT = conv(x_BTD.transpose(1, 2), self._taps(x_BTD.shape[1]), self.bias_D)
        return self.gate(x_BTD) * conv_BDT.transpose(1, 2)

    def _taps(self, T):
        """The filter, (D, K), of an implicit one the first T taps."""
        if self.implicit:
            with torch.autocast(self.bias_D.device.type, enabled=False):
                return self.filter(position_features(self.K, T, like=self.bias_D)).T
        return self.taps_DK

    def start(self, batch_size):
        return {"past_BDK": self.bias_D.new_empty(batch_size, self.bias_D.numel(), 0)}

    def step(self, x_BD, state, context):  # noqa: ARG002
        conv_BD, past_BDK = conv_step(x_BD, state["past_BDK"], self._taps(self.K))
        return self.gate(x_BD) * (conv_BD + self.bias_D), {"past_BDK": past_BDK}

    def state_size(self, T):
        return self.bias_D.numel() * min(self.K - 1, T)

    def flops(self, T):
        return linear_flops(self.gate) + self.bias_D.numel() * conv_flops(T, self.K) + self._filter_flops()

    def _filter_flops(self):
        """An implicit filter is made once a forward, for one position a token of the context."""
        return linear_flops(self.filter[0], self.filter[2]) if self.implicit else 0

    def param_rules(self):
        return {"filter": ParamRule(), "taps": ParamRule(), "bias": ParamRule()}


def position_features(context_len, T, like):
    """t / (L - 1), cos(2 pi t / L) and sin(2 pi t / L) of positions 0 .. T - 1 of a context of L, (T, 3)."""
    t = torch.arange(T, device=like.device, dtype=like.dtype)
    angle = 2 * torch.pi * t / context_len
    return torch.stack([t / max(context_len - 1, 1), angle.cos(), angle.sin()], dim=-1)
