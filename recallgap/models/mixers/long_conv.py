"""Long convolutions with free, squashed kernels (Fu et al. 2023, arXiv 2302.06646, section 3).

    h = dropout(sign(k) max(|k| - lam, 0))          k: as many free taps as the context is long, per channel
    y = GLU(W GELU(h conv x + d * x) + b)           GLU(a, b) = a * sigmoid(b), W (2D, D)

Squashing keeps the kernel sparse; dropout falls on the kernel, not on activations.
As in safari (src/models/sequence/long_conv.py and long_conv_kernel.py; lam and dropout of
configs/model/layer/long-conv.yaml): k ~ 0.002 N(0, 1), so that at first most taps lie below lam, are zero and
get no gradient; d ~ N(0, 1); W as safari's language models start a projection into the residual stream. Left
out: two-sided kernels, smoothing by moving averages, the alternative `double_exp` start.
Legend: B batch, T position, D width, C kernels a channel, K kernel length.
"""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from recallgap.errors import ConfigError
from recallgap.models.convolution import (
    causal_conv,
    channel_major,
    conv_flops,
    conv_step,
    from_channels,
    with_skip,
)
from recallgap.models.mixer import ParamRule, wide
from recallgap.models.state_mixers import linear_flops, residual_std

KERNEL_STD = 0.002


class LongConv(nn.Module):
    """y = GLU(W GELU(h conv x + d * x) + b), h free taps behind a soft threshold."""

    @dataclass(frozen=True, kw_only=True)
    class Options:
        n_kernels: int = 1
        """Kernels a channel, C; the linear layer mixes all C D results."""
        threshold: float = 0.003
        """Soft threshold of the taps, lam; 0: none."""
        kernel_dropout: float = 0.2
        """Share of the taps dropped in a training step."""
        kernel_lr: float | None = 1e-3
        """Highest learning rate of the kernel; None: the model's."""

        def __post_init__(self):
            if self.n_kernels < 1:
                raise ConfigError(f"long_conv: n_kernels is {self.n_kernels}, but a channel needs at least 1")
            if self.threshold < 0:
                raise ConfigError(f"long_conv: threshold is {self.threshold}, but it cannot be negative")
            if not 0 <= self.kernel_dropout < 1:
                raise ConfigError(
                    f"long_conv: kernel_dropout is {self.kernel_dropout}, but a probability below 1 is needed"
                )

    def __init__(self, d_model, options, place):
        super().__init__()
        self.options, self.place = options, place
        self.kernel_CDK = nn.Parameter(torch.empty(options.n_kernels, d_model, place.context_len))
        self.skip_CD = nn.Parameter(torch.empty(options.n_kernels, d_model))
        self.out = nn.Linear(options.n_kernels * d_model, 2 * d_model)

    def init_weights(self):
        nn.init.normal_(self.kernel_CDK, std=KERNEL_STD)
        nn.init.normal_(self.skip_CD)
        nn.init.normal_(self.out.weight, std=residual_std(self.place))
        nn.init.zeros_(self.out.bias)

    def forward(self, x_BTD, context):  # noqa: ARG002
        x_BDT = channel_major(x_BTD.transpose(1, 2))
        mixed = [causal_conv(x_BDT, kernel_DK) for kernel_DK in self._kernels(x_BTD.shape[1])]
        mixed_BDT = mixed[0] if len(mixed) == 1 else torch.cat(mixed, dim=1)
        return F.glu(from_channels(self.out, F.gelu(mixed_BDT)))

    def _kernels(self, T):
        """The first T taps of h, with d on the tap of the present position."""
        kernel_CDK = F.softshrink(wide(self.kernel_CDK[..., :T]), self.options.threshold)
        return with_skip(
            F.dropout(kernel_CDK, self.options.kernel_dropout, self.training), wide(self.skip_CD)
        )

    def start(self, batch_size):
        D = self.skip_CD.shape[1]
        return {"past_BDK": self.skip_CD.new_empty(batch_size, D, 0)}

    def step(self, x_BD, state, context):  # noqa: ARG002
        mixed = [conv_step(x_BD, state["past_BDK"], kernel_DK) for kernel_DK in self._kernels(None)]
        mixed_BD = torch.cat([y_BD for y_BD, _ in mixed], dim=1)
        return F.glu(self.out(F.gelu(mixed_BD))), {"past_BDK": mixed[0][1]}

    def state_size(self, T):
        return self.skip_CD.shape[1] * min(T, self.place.context_len - 1)

    def flops(self, T):
        return linear_flops(self.out) + self.skip_CD.numel() * conv_flops(T, self.place.context_len)

    def param_rules(self):
        kernel = ParamRule(lr_max=self.options.kernel_lr)
        return {"kernel": kernel, "skip": ParamRule(), "bias": ParamRule()}
