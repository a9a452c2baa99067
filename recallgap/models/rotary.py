"""Rotary position embedding (Su et al. 2021, arXiv 2104.09864): queries and keys, turned by their positions.

Pair (i, i + E/2) of a head of width E turns by t * base^(-2 i / E), as in GPT-NeoX and Llama.
Legend: B batch, H heads, T position, E head width.
"""

import torch


def rotate(x_BHTE, base, first=0, positions_BT=None):
    """Turn each position of (B, H, T, E): position 0 of x is position `first` of the context, unless
    `positions_BT` tells the position of each."""
    T, E = x_BHTE.shape[-2:]
    dtype = torch.float64 if x_BHTE.dtype == torch.float64 else torch.float32
    if positions_BT is None:
        positions_BT = torch.arange(first, first + T, device=x_BHTE.device).unsqueeze(0)
    frequency = base ** (-torch.arange(0, E, 2, device=x_BHTE.device, dtype=dtype) / E)
    angle_B1TE = (positions_BT.to(dtype).unsqueeze(-1) * frequency).unsqueeze(1)
    cos, sin = angle_B1TE.cos().to(x_BHTE.dtype), angle_B1TE.sin().to(x_BHTE.dtype)
    partner_BHTE = x_BHTE.roll(E // 2, dims=-1)
    return torch.addcmul(x_BHTE * torch.cat([cos, cos], -1), partner_BHTE, torch.cat([-sin, sin], -1))
