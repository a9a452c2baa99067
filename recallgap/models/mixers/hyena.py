"""Hyena (Poli et al. 2023, arXiv 2302.10866, section 3): gates and implicit long filters in turn.

    x_0, .., x_{N-1}, v = short conv of (W x + b)        N + 1 projections; depthwise, K taps, with bias
    v <- h_n conv (x_n * v) + d_n * (x_n * v)            for n = N - 1, .., 1
    y = W_o (x_0 * v) + b_o
    h_n(t) = exp(-a t / (L - 1)) * MLP(features of t)    per channel; L the context length

MLP: linear, sin(w .), twice linear and sin(w .), linear without bias; all sines share one trained vector w.
Features: t / (L - 1), cos(2 pi f t / L) and -sin(2 pi f t / L) for f = 1e-4 .. bands - 1 in equal steps; they
are a table, trained too, slowly. Decays a: |ln 0.01| / 1.5 .. |ln 0.01| / 0.3 over the channels, fixed.
As in safari (src/models/sequence/hyena.py; one head, one block, no dropout). Its language models start linear
layers as N(0, 0.02), the filter's too, which leaves filters of 2e-5 unless w is large: the Pile's had w = 14.
Here the default filter starts as the layer's own code has it; `PILE` holds the options of those runs.
The filter is made in float32 also under autocast; each d is added to the first tap.
Legend: B batch, T position, D width, N order, K taps, L context length, E features, C all filters' channels.
"""

import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from recallgap.errors import ConfigError
from recallgap.models.backends import Operation
from recallgap.models.convolution import (
    causal_conv,
    conv_flops,
    conv_step,
    from_channels,
    to_channels,
    with_skip,
)
from recallgap.models.mixer import ParamRule, fill_
from recallgap.models.state_mixers import INIT_STD, linear_flops, residual_std

PILE = {"n_features": 33, "sin_freq": 14.0, "filter_std": INIT_STD, "features_lr": None}
"""Options of safari's configs/experiment/pile/hyena.yaml."""
SLOWEST, FASTEST = -math.log(0.01) / 1.5, -math.log(0.01) / 0.3


class Hyena(nn.Module):
    """y = W_o (x_0 * (h_1 conv (x_1 * .. (h_{N-1} conv (x_{N-1} * v)))))."""

    @dataclass(frozen=True, kw_only=True)
    class Options:
        order: int = 2
        """Gates, N; there are N - 1 long filters."""
        short_len: int = 3
        """Taps of the short convolution, K."""
        d_filter: int = 64
        """Width of the filter's MLP, F."""
        n_features: int = 3
        """Features of a position, E: odd, the time and (E - 1) / 2 bands of cosine and sine."""
        sin_freq: float = 1.0
        """Initial frequency w of the sines."""
        filter_std: float | None = None
        """Standard deviation of the MLP's matrices at the start, biases 0; None: as torch's linear layers."""
        features_lr: float | None = 1e-5
        """Highest learning rate of the features; None: the model's."""

        def __post_init__(self):
            if self.order < 2:
                raise ConfigError(f"hyena: order is {self.order}, but it needs at least 2 gates")
            if self.short_len < 1 or self.d_filter < 1:
                raise ConfigError(
                    f"hyena: short_len is {self.short_len} and d_filter {self.d_filter}, but need 1 or more"
                )
            if self.n_features < 3 or self.n_features % 2 == 0:
                raise ConfigError(
                    f"hyena: n_features is {self.n_features}, but the time and pairs of cosine and sine "
                    "make an odd number of at least 3"
                )

    def __init__(self, d_model, options, place):
        super().__init__()
        self.options, self.place, self.d_model = options, place, d_model
        N, d_filter = options.order, options.d_filter
        self.operation = Operation("short_conv", options.short_len)
        self.inputs = nn.Linear(d_model, (N + 1) * d_model)
        self.short_DK = nn.Parameter(torch.empty((N + 1) * d_model, options.short_len))
        self.short_bias_D = nn.Parameter(torch.empty((N + 1) * d_model))
        self.features_LE = nn.Parameter(torch.empty(place.context_len, options.n_features))
        self.filter_in = nn.Linear(options.n_features, d_filter)
        self.filter_inner = nn.ModuleList([nn.Linear(d_filter, d_filter) for _ in range(2)])
        self.filter_out = nn.Linear(d_filter, (N - 1) * d_model, bias=False)
        self.filter_freq_F = nn.Parameter(torch.empty(d_filter))
        self.skip_ND = nn.Parameter(torch.empty(N - 1, d_model))
        self.out = nn.Linear(d_model, d_model)

    def init_weights(self):
        nn.init.normal_(self.inputs.weight, std=INIT_STD)
        nn.init.normal_(self.out.weight, std=residual_std(self.place))
        nn.init.zeros_(self.inputs.bias)
        nn.init.zeros_(self.out.bias)
        for short in (self.short_DK, self.short_bias_D):
            nn.init.uniform_(short, -(self.options.short_len**-0.5), self.options.short_len**-0.5)
        for layer in self._filter_layers():
            if self.options.filter_std is None:
                layer.reset_parameters()
            else:
                nn.init.normal_(layer.weight, std=self.options.filter_std)
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)
        nn.init.constant_(self.filter_freq_F, self.options.sin_freq)
        nn.init.normal_(self.skip_ND)
        fill_(self.features_LE, position_features(*self.features_LE.shape).to(self.features_LE.device))

    def _filter_layers(self):
        return [self.filter_in, *self.filter_inner, self.filter_out]

    def forward(self, x_BTD, context):  # noqa: ARG002
        short_conv = self.operation.kernel(x_BTD) or causal_conv
        short_BDT = short_conv(to_channels(self.inputs, x_BTD), self.short_DK, self.short_bias_D)
        *gates, v_BDT = short_BDT.split(self.d_model, dim=1)
        for gate_BDT, kernel_DK in zip(reversed(gates[1:]), self._filters(x_BTD.shape[1]), strict=True):
            v_BDT = causal_conv(gate_BDT * v_BDT, kernel_DK)
        return from_channels(self.out, gates[0] * v_BDT)

    def _filters(self, T):
        """The first T taps of each filter in order of use, with d on the first, (N - 1, D, T)."""
        with torch.autocast(self.features_LE.device.type, enabled=False):
            h = F.linear(self.features_LE[:T], self.filter_in.weight, self.filter_in.bias)
            for layer in self.filter_inner:
                h = layer(torch.sin(self.filter_freq_F * h))
            h_TC = self.filter_out(torch.sin(self.filter_freq_F * h))
        C = h_TC.shape[1]
        decay_C = torch.linspace(SLOWEST, FASTEST, C, device=h_TC.device, dtype=h_TC.dtype)
        time_T1 = torch.arange(len(h_TC), device=h_TC.device, dtype=h_TC.dtype).unsqueeze(1)
        h_TC = h_TC * torch.exp(-decay_C * time_T1 / max(self.place.context_len - 1, 1))
        kernel_NDT = h_TC.T.unflatten(0, (self.d_model, -1)).transpose(0, 1)
        return with_skip(kernel_NDT, self.skip_ND)

    def start(self, batch_size):
        """The inputs that each convolution must remember: the short one's, then the long ones'."""
        widths = {"short": self.short_bias_D.numel()} | {
            f"long_{n}": self.d_model for n in range(len(self.skip_ND))
        }
        return {f"{name}_BDK": self.skip_ND.new_empty(batch_size, D, 0) for name, D in widths.items()}

    def step(self, x_BD, state, context):  # noqa: ARG002
        short_BD, short_BDK = conv_step(self.inputs(x_BD), state["short_BDK"], self.short_DK)
        *gates, v_BD = (short_BD + self.short_bias_D).split(self.d_model, dim=1)
        after = {"short_BDK": short_BDK}
        for n, (gate_BD, kernel_DK) in enumerate(
            zip(reversed(gates[1:]), self._filters(self.place.context_len), strict=True)
        ):
            v_BD, after[f"long_{n}_BDK"] = conv_step(gate_BD * v_BD, state[f"long_{n}_BDK"], kernel_DK)
        return self.out(gates[0] * v_BD), after

    def state_size(self, T):
        short = self.short_bias_D.numel() * min(T, self.options.short_len - 1)
        return short + self.skip_ND.numel() * min(T, self.place.context_len - 1)

    def flops(self, T):
        """The filter is made once a forward, for one position a token of the context."""
        short = self.short_bias_D.numel() * conv_flops(T, self.options.short_len)
        long = self.skip_ND.numel() * conv_flops(T, self.place.context_len)
        return linear_flops(self.inputs, self.out, *self._filter_layers()) + short + long

    def param_rules(self):
        return {
            "short": ParamRule(),
            "filter": ParamRule(),
            "features": ParamRule(lr_max=self.options.features_lr),
            "skip": ParamRule(),
            "bias": ParamRule(),
        }


def position_features(context_len, n_features):
    """[t / (L - 1), cos(2 pi f t / L) .., -sin(2 pi f t / L) ..] of every t in a context, (L, E), float64."""
    t_L1 = torch.arange(context_len, dtype=torch.float64).unsqueeze(1)
    bands = (n_features - 1) // 2
    angle_LF = 2 * torch.pi / context_len * t_L1 * torch.linspace(1e-4, bands - 1, bands, dtype=torch.float64)
    return torch.cat([t_L1 / max(context_len - 1, 1), angle_LF.cos(), -angle_LF.sin()], dim=1)
