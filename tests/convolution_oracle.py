"""The causal convolution read literally, for the tests of whatever is made of it."""

import torch


def naive_conv(x_BTD, kernel_DK):
    """y[b, t, d] = sum over j <= min(t, K - 1) of kernel[d, j] * x[b, t - j, d], one product at a time."""
    T, K = x_BTD.shape[1], kernel_DK.shape[1]
    columns = [sum(kernel_DK[:, j] * x_BTD[:, t - j] for j in range(min(t + 1, K))) for t in range(T)]
    return torch.stack(columns, dim=1)


def gradients(y, inputs, seed=4):
    """Gradients of a random weighted sum of y."""
    weights = torch.randn(y.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.autograd.grad((y * weights.to(y.dtype)).sum(), inputs)


def assert_same(y, expected, inputs, tolerance):
    """Equal values, and equal gradients with respect to each input."""
    torch.testing.assert_close(y, expected, atol=tolerance, rtol=tolerance)
    for got, wanted in zip(gradients(y, inputs), gradients(expected, inputs), strict=True):
        torch.testing.assert_close(got, wanted, atol=tolerance, rtol=tolerance)
