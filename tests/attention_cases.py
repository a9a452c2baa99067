"""Attention as its equations say, row by row, for the mixers that attend; and how tensors are compared.

Legend: T position, D model width, H heads, E head width.
"""

import torch

EXACT = 1e-10
"""float64, sums of a few hundred terms of unit size."""


def turned(x_E, t, base):
    """Pair (i, i + E/2) as a complex number, multiplied by exp(j t base^(-2 i / E))."""
    low, high = x_E.chunk(2)
    angle = t * base ** (-torch.arange(0, len(x_E), 2, dtype=x_E.dtype) / len(x_E))
    pairs = torch.complex(low, high) * torch.polar(torch.ones_like(angle), angle)
    return torch.cat([pairs.real, pairs.imag])


def rms_normed(x_E, norm):
    return (
        x_E
        if isinstance(norm, torch.nn.Identity)
        else norm.weight * x_E / (x_E.square().mean() + 1e-5).sqrt()
    )


def attention_row(heads, x_TD, t, seen):
    """W_o of all heads' attention of row t over the positions `seen`."""
    columns = []
    for h in range(heads.n_heads):
        group = h * heads.n_kv_heads // heads.n_heads
        query, key, value = (
            linear.weight[head * heads.d_head : (head + 1) * heads.d_head]
            for linear, head in ((heads.query, h), (heads.key, group), (heads.value, group))
        )
        q_E = turned(rms_normed(query @ x_TD[t], heads.query_norm), t, heads.base)
        k_SE = [turned(rms_normed(key @ x_TD[s], heads.key_norm), s, heads.base) for s in seen]
        weight_S = torch.stack([q_E @ k_E / heads.d_head**0.5 for k_E in k_SE]).exp()
        columns.append((weight_S / weight_S.sum()) @ torch.stack([value @ x_TD[s] for s in seen]))
    return heads.out.weight @ torch.cat(columns)


def attention_by_rows(heads, x_BTD, seen_by):
    """(B, T, D), row t of each sequence over the positions seen_by(t)."""
    return torch.stack(
        [torch.stack([attention_row(heads, x_TD, t, seen_by(t)) for t in range(len(x_TD))]) for x_TD in x_BTD]
    )


def assert_same(mixer, x_BTD, fast, slow):
    """Values, and gradients of the input and of every parameter, of fast() and slow()."""
    inputs = [x_BTD, *mixer.parameters()]
    y, expected = fast(), slow()
    torch.testing.assert_close(y, expected, atol=EXACT, rtol=EXACT)
    weight = torch.randn(y.shape, generator=torch.Generator().manual_seed(5), dtype=y.dtype)
    for found, wanted in zip(
        torch.autograd.grad((y * weight).sum(), inputs),
        torch.autograd.grad((expected * weight).sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(found, wanted, atol=EXACT, rtol=EXACT)


def assert_normal(weight, std):
    """The entries are N(0, std): mean, standard deviation and tails, each within 5 of its own deviations."""
    z = weight.detach().double().flatten() / std
    n = z.numel()
    assert abs(float(z.mean())) < 5 / n**0.5
    assert abs(float(z.std()) - 1) < 5 / (2 * n) ** 0.5
    beyond_2 = 0.0455
    assert abs(float((z.abs() > 2).double().mean()) - beyond_2) < 5 * (beyond_2 * (1 - beyond_2) / n) ** 0.5
