"""Causal depthwise convolution, the only place where it is computed.

    y[b, d, t] = sum over j <= min(t, K - 1) of h[d, j] * x[b, d, t - j]  (+ bias[d])

Short kernels use the direct form, one shifted product a tap; long ones the FFT of at least T + K - 1 points,
so that nothing wraps around. Both run in float32 (float64 for float64 input) whatever autocast says: half
precision loses the tail. Gradients are written out: autograd would keep every product and every spectrum.

The result lies in memory as x does: time-major (B, T, D), as a model's activations come, or channel-major
(D, B, T) or (B, D, T). The direct form likes either; the FFT needs channel-major, and transposing takes half
as long as transforming: `to_channels` and `from_channels` are linear layers that transpose for nothing.
Tiles and thresholds are for CPUs. Elsewhere each form runs on all of x at once, which nobody has measured.
Legend: B batch, D channels, T position, K kernel length.
"""

import math

import torch
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from recallgap.models.mixer import wide

LONGEST_DIRECT = 16
"""Longest kernel in the direct form. On a CPU the FFT trains faster from 12 taps on where x is channel-major,
from 28 on where it is time-major (benchmarks/convolution.py)."""
TILE = 1 << 16
"""Numbers that the direct form takes at a time on a CPU, so that every tap finds them in the cache."""
TRANSFORM = 1 << 19
"""Points transformed at a time on a CPU, likewise; setting up a transform does not pay for fewer."""


@torch.compiler.disable
def causal_conv(x_BDT, kernel_DK, bias_D=None):
    """Convolve each channel of x with its kernel, causally; (B, D, T) in x's dtype and memory layout."""
    kernel_DK = kernel_DK[:, : x_BDT.shape[2]]
    conv = direct_conv if kernel_DK.shape[1] <= LONGEST_DIRECT else fft_conv
    return conv(x_BDT, kernel_DK, bias_D)


def conv_step(x_BD, past_BDK, kernel_DK):
    """One column of `causal_conv`, and the inputs to hold for the next: the last K - 1, or all if fewer."""
    window_BDK = torch.cat([past_BDK, x_BD.unsqueeze(-1)], dim=-1)
    n, K = window_BDK.shape[-1], kernel_DK.shape[1]
    return (window_BDK * kernel_DK[:, :n].flip(1)).sum(-1), window_BDK[..., max(n - K + 1, 0) :]


def to_channels(linear, x_BTD):
    """A linear layer with a channel-major result: (B, D, T), in memory (D, B, T)."""
    B, T, _ = x_BTD.shape
    x_D_BT = x_BTD.flatten(0, 1).T
    if linear.bias is None:
        y_D_BT = torch.mm(linear.weight, x_D_BT)
    else:
        y_D_BT = torch.addmm(linear.bias.unsqueeze(1), linear.weight, x_D_BT)
    return y_D_BT.view(-1, B, T).transpose(0, 1)


def from_channels(linear, x_BDT):
    """A linear layer of a tensor that lies in memory as (D, B, T), with a usual result (B, T, D)."""
    B, D, T = x_BDT.shape
    return F.linear(x_BDT.transpose(0, 1).reshape(D, B * T).T, linear.weight, linear.bias).view(B, T, -1)


def direct_conv(x_BDT, kernel_DK, bias_D=None):
    """The convolution as K shifted products."""
    return _DirectConv.apply(x_BDT, kernel_DK, bias_D)


def fft_conv(x_BDT, kernel_DK, bias_D=None):
    """The convolution as a product of transforms."""
    return _FFTConv.apply(x_BDT, kernel_DK, bias_D)


class _DirectConv(torch.autograd.Function):
    """Stores only x and the kernel."""

    @staticmethod
    def forward(ctx, x_BDT, kernel_DK, bias_D):
        ctx.save_for_backward(x_BDT, kernel_DK, bias_D)
        K, y_BDT = kernel_DK.shape[1], torch.empty_like(x_BDT)
        taps_KD1 = wide(kernel_DK).T.contiguous().unsqueeze(2)
        start_D1 = torch.zeros_like(taps_KD1[0]) if bias_D is None else wide(bias_D).unsqueeze(1)
        for rows, channels, tile in _tiles(x_BDT):
            past = min(K - 1, tile.start)
            x = wide(x_BDT[rows, channels, tile.start - past : tile.stop])
            result = y_BDT[rows, channels, tile]
            y = result if result.dtype == x.dtype else torch.empty_like(result, dtype=x.dtype)
            torch.addcmul(start_D1[channels], x[..., past:], taps_KD1[0, channels], out=y)
            for j in range(1, min(K, x.shape[2])):
                lost = max(j - past, 0)
                y[..., lost:].addcmul_(x[..., past + lost - j : x.shape[2] - j], taps_KD1[j, channels])
            if y is not result:
                result.copy_(y)
        return y_BDT

    @staticmethod
    @once_differentiable
    def backward(ctx, dy_BDT):
        x_BDT, kernel_DK, bias_D = ctx.saved_tensors
        K, dx_BDT = kernel_DK.shape[1], torch.empty_like(x_BDT)
        taps_KD1 = wide(kernel_DK).T.contiguous().unsqueeze(2)
        dtaps_KD = torch.zeros_like(taps_KD1.squeeze(2))
        for rows, channels, tile in _tiles(x_BDT):
            x = wide(x_BDT[rows, channels, tile])
            dy = wide(dy_BDT[rows, channels, tile.start : tile.stop + K - 1])
            dx = dy[..., : x.shape[2]] * taps_KD1[0, channels]
            for j in range(min(K, dy.shape[2])):
                dy_j = dy[..., j : j + x.shape[2]]
                there = slice(dy_j.shape[2])
                dtaps_KD[j, channels] += (x[..., there] * dy_j).sum((0, 2))
                if j > 0:
                    dx[..., there].addcmul_(dy_j, taps_KD1[j, channels])
            dx_BDT[rows, channels, tile] = dx
        return dx_BDT, dtaps_KD.T.to(kernel_DK.dtype), _bias_gradient(dy_BDT, bias_D)


def _tiles(x_BDT):
    """Indices of parts of x that are contiguous or nearly so: stretches of time or groups of channels."""
    B, D, T = x_BDT.shape
    if x_BDT.device.type != "cpu":
        return [(slice(B), slice(D), slice(0, T))]
    if _is_channel_major(x_BDT):
        return [(slice(B), channels, slice(0, T)) for channels in _slices(D, max(1, TILE // (B * T)))]
    times = _slices(T, max(1, TILE // D))
    return [(slice(b, b + 1), slice(D), tile) for b in range(B) for tile in times]


class _FFTConv(torch.autograd.Function):
    """Stores only x and the kernel, and transforms them again in the backward pass."""

    @staticmethod
    def forward(ctx, x_BDT, kernel_DK, bias_D):
        ctx.save_for_backward(x_BDT, kernel_DK, bias_D)
        x_rows = _channel_major(x_BDT)
        y_rows, n = torch.empty_like(x_rows), fft_length(x_BDT.shape[2] + kernel_DK.shape[1] - 1)
        for channels, chunks in _chunks(x_rows, n):
            kernel_f = _spectrum(kernel_DK[channels], n)
            for chunk in chunks:
                y = _signal(_spectrum(x_rows[chunk], n).mul_(kernel_f), n, y_rows.shape[2])
                y_rows[chunk] = y if bias_D is None else y.add_(bias_D[channels].unsqueeze(1))
        return y_rows if _is_channel_major(x_BDT) else _time_major(y_rows)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy_BDT):
        x_BDT, kernel_DK, bias_D = ctx.saved_tensors
        x_rows, dy_rows = _channel_major(x_BDT), _channel_major(dy_BDT)
        dx_rows, dkernel_DK = torch.empty_like(x_rows), torch.empty_like(wide(kernel_DK))
        T, K = x_BDT.shape[2], kernel_DK.shape[1]
        n = fft_length(T + K - 1)
        for channels, chunks in _chunks(x_rows, n):
            kernel_f = _spectrum(kernel_DK[channels], n).conj_physical_()
            dkernel_f = torch.zeros_like(kernel_f)
            for chunk in chunks:
                x_f, dy_f = _spectrum(x_rows[chunk], n).conj_physical_(), _spectrum(dy_rows[chunk], n)
                for x_of_one_f, dy_of_one_f in zip(x_f, dy_f, strict=True):
                    dkernel_f.addcmul_(x_of_one_f, dy_of_one_f)
                dx_rows[chunk] = _signal(dy_f.mul_(kernel_f), n, T)
            dkernel_DK[channels] = _signal(dkernel_f, n, K)
        dx_BDT = dx_rows if _is_channel_major(x_BDT) else _time_major(dx_rows)
        return dx_BDT, dkernel_DK.to(kernel_DK.dtype), _bias_gradient(dy_rows, bias_D)


def _chunks(x_BDT, n):
    """For groups of channels: their slice, and the indices of the parts of x to transform at a time."""
    B, D, _ = x_BDT.shape
    n_channels = n_rows = B * D
    if x_BDT.device.type == "cpu":
        n_channels = min(D, max(1, TRANSFORM // n))
        n_rows = max(1, TRANSFORM // (n * n_channels))
    for channels in _slices(D, n_channels):
        yield channels, [(rows, channels) for rows in _slices(B, n_rows)]


def _spectrum(x, n):
    return torch.fft.rfft(wide(x), n=n)


def _signal(x_f, n, length):
    return torch.fft.irfft(x_f, n=n)[..., :length]


def _slices(length, step):
    return [slice(first, min(first + step, length)) for first in range(0, length, step)]


def _bias_gradient(dy_BDT, bias_D):
    return None if bias_D is None else wide(dy_BDT).sum((0, 2)).to(bias_D.dtype)


@torch.compiler.disable
def channel_major(x_BDT):
    """x in memory order (D, B, T), or as it is where T is innermost already; its gradient in x's order."""
    return _ChannelMajor.apply(x_BDT)


class _ChannelMajor(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x_BDT):
        ctx.time_major = not _is_channel_major(x_BDT)
        return _channel_major(x_BDT)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy_BDT):
        return _time_major(dy_BDT) if ctx.time_major else dy_BDT


def _is_channel_major(x_BDT):
    return x_BDT.stride(2) == 1 or x_BDT.shape[2] == 1


def _channel_major(x_BDT):
    if _is_channel_major(x_BDT):
        return x_BDT
    B, D, T = x_BDT.shape
    x_D_BT = x_BDT.transpose(1, 2).reshape(B * T, D).T.contiguous()
    return x_D_BT.view(D, B, T).transpose(0, 1)


def _time_major(x_BDT):
    B, D, T = x_BDT.shape
    x_BT_D = x_BDT.transpose(0, 1).reshape(D, B * T).T.contiguous()
    return x_BT_D.view(B, T, D).transpose(1, 2)


def with_skip(kernel_DK, skip_D):
    """The kernel that does what `h conv x + skip * x` does."""
    return kernel_DK + F.pad(skip_D.unsqueeze(-1), (0, kernel_DK.shape[-1] - 1))


def fft_length(n):
    """The smallest even 2^a 3^b 5^c that is at least n: fast sizes lie much closer than powers of two.

    >>> fft_length(2048 + 2048 - 1), fft_length(2048 + 64 - 1), fft_length(3)
    (4096, 2160, 4)
    """
    best, power_of_5 = 1 << max(1, (n - 1).bit_length()), 1
    while power_of_5 < best:
        power_of_15 = power_of_5
        while power_of_15 < best:
            rest = -(-n // power_of_15)
            best = min(best, power_of_15 << max(1, (rest - 1).bit_length()))
            power_of_15 *= 3
        power_of_5 *= 5
    return best


def conv_flops(T, K, rows=1):
    """Operations a token and kernel: 2 K direct; by FFT, two for each row it meets and one for itself."""
    K = min(T, K)
    if K <= LONGEST_DIRECT:
        return 2 * K * rows
    return (2 * rows + 1) * real_fft_flops(fft_length(T + K - 1)) / T


def real_fft_flops(n):
    """Operations of a real FFT of n points, 5/2 n log2 n."""
    return 2.5 * n * math.log2(n)
