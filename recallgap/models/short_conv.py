"""The short convolution in front of a linear recurrence (Mamba, arXiv 2312.00752, section 3.4).

    y = SiLU(h conv x + bias)          causal, per channel, K taps

Taps and biases start as torch's Conv1d does, U(-1/sqrt(K), 1/sqrt(K)), where Mamba leaves them.
Legend: B batch, T position, D channels, K kernel length.
"""

import torch
from torch import nn
from torch.nn import functional as F

from recallgap.errors import ConfigError
from recallgap.models.backends import Operation
from recallgap.models.convolution import causal_conv, conv_flops, conv_step


class ShortConv(nn.Module):
    """SiLU of a causal convolution of each channel, (B, T, D) to (B, T, D)."""

    def __init__(self, channels, kernel_len, *, bias):
        super().__init__()
        if kernel_len < 1:
            raise ConfigError(f"conv_len is {kernel_len}, but a convolution needs at least 1 tap")
        self.operation = Operation("short_conv", kernel_len)
        self.taps_DK = nn.Parameter(torch.empty(channels, kernel_len))
        self.bias_D = nn.Parameter(torch.empty(channels)) if bias else None

    def init_weights(self):
        bound = self.taps_DK.shape[1] ** -0.5
        nn.init.uniform_(self.taps_DK, -bound, bound)
        if self.bias_D is not None:
            nn.init.uniform_(self.bias_D, -bound, bound)

    def forward(self, x_BTD):
        x_BDT = x_BTD.transpose(1, 2)
        kernel = self.operation.kernel(x_BDT)
        if kernel is not None:
            return kernel(x_BDT, self.taps_DK, self.bias_D, silu=True).transpose(1, 2)
        return F.silu(causal_conv(x_BDT, self.taps_DK, self.bias_D).transpose(1, 2))

    def start(self, batch_size):
        """The K - 1 inputs before the first: zeros, (B, D, K - 1)."""
        D, K = self.taps_DK.shape
        return self.taps_DK.new_zeros(batch_size, D, K - 1)

    def step(self, x_BD, past_BDK):
        """One column of `forward`, and the inputs to hold for the next."""
        sum_BD, past_BDK = conv_step(x_BD, past_BDK, self.taps_DK)
        return F.silu(sum_BD if self.bias_D is None else sum_BD + self.bias_D), past_BDK

    def state_size(self):
        D, K = self.taps_DK.shape
        return D * (K - 1)

    def flops(self, T):
        D, K = self.taps_DK.shape
        return D * conv_flops(T, K)
