"""Help for tests of linear recurrences: two ways to one result, and inputs that hurt."""

import torch

EXACT = 1e-10
"""float64, sums of a few hundred unit-size terms."""
LENGTHS = (1, 2, 7, 8, 9, 63, 64, 65, 127, 130, 200)
"""Around the lengths of chunks and blocks, and no multiple of them."""


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=generator(seed), dtype=torch.float64)


def uniform(*shape, seed=0):
    return torch.rand(*shape, generator=generator(seed), dtype=torch.float64)


def with_gradients(function, inputs):
    """The output, and the gradients of a weighted sum of it, each as float64."""
    inputs = [x.detach().requires_grad_() for x in inputs]
    output = function(*inputs)
    weights = torch.cos(torch.arange(output.numel(), dtype=torch.float64)).view_as(output)
    gradients = torch.autograd.grad((output * weights).sum(), inputs)
    return [x.double() for x in (output.detach(), *gradients)]


def assert_same(fast, slow, inputs, *, tolerance=EXACT):
    """Outputs and gradients agree, relative to the largest number of each."""
    for ours, theirs in zip(with_gradients(fast, inputs), with_gradients(slow, inputs), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=tolerance * max(1.0, float(theirs.abs().max())))


def assert_same_in_float32(fast, slow, inputs, *, tolerance):
    """float32 results of `fast`, all finite, are near the float64 ones of `slow`."""
    exact = with_gradients(slow, inputs)
    rounded = with_gradients(fast, [x.float() for x in inputs])
    for ours, theirs in zip(rounded, exact, strict=True):
        assert ours.isfinite().all()
        torch.testing.assert_close(ours, theirs, rtol=0, atol=tolerance * max(1.0, float(theirs.abs().max())))
