"""Attention over a sliding window (Beltagy et al. 2020, arXiv 2004.05150, 3.1; as in arXiv 2310.06825).

    y_t = W_o sum over t - W < s <= t of softmax(q_t k_s / sqrt(E)) v_s        q, k rotated as in `attention`

The W latest tokens, the present one among them. Queries are cut into blocks of C, and each block sees its own
keys and those of the W - 1 tokens before it, rounded up to P whole blocks: C + P keys a query, whatever T is.
A model of L layers reaches back L (W - 1) tokens.
Legend: B batch, T position, D width, H heads, G key-value heads, E head width, W window, N blocks, C block.
"""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from recallgap.errors import ConfigError
from recallgap.models.heads import HeadOptions, Heads
from recallgap.models.rotary import rotate

SMALLEST_BLOCK, LARGEST_BLOCK = 32, 256
"""Block lengths: smaller ones waste time on calls, larger ones on keys outside the window (measured, CPU)."""


class SlidingAttention(nn.Module):
    """Softmax attention over the `window` latest tokens, with rotary positions."""

    @dataclass(frozen=True, kw_only=True)
    class Options(HeadOptions):
        window: int = 128
        """Tokens that a query sees, W, itself among them. 128 as in Based (arXiv 2402.18668)."""

        def __post_init__(self):
            if self.window < 1:
                raise ConfigError(f"sliding_attention: a window of {self.window} tokens holds no key")

    def __init__(self, d_model, options, place):
        super().__init__()
        self.heads = Heads(d_model, options, place, "sliding_attention")
        self.window = options.window
        self.block = min(max(self.window, SMALLEST_BLOCK), LARGEST_BLOCK)

    def init_weights(self):
        self.heads.reset_parameters()

    def forward(self, x_BTD, context):  # noqa: ARG002
        q_BHTE = self.heads.queries(x_BTD)
        k_BGTE, v_BGTE = self.heads.keys(x_BTD), self.heads.values(x_BTD)
        if x_BTD.shape[1] <= self.window:
            return self.heads.join(self.heads.attend(q_BHTE, k_BGTE, v_BGTE, is_causal=True))
        return self.heads.join(self._attend_in_blocks(q_BHTE, k_BGTE, v_BGTE))

    def _attend_in_blocks(self, q_BHTE, k_BGTE, v_BGTE):
        B, _, T, _ = q_BHTE.shape
        q_NXCE = self._blocks(q_BHTE).flatten(1, 2)
        n_before = self._blocks_before()
        k_NXSE, v_NXSE = (_with_blocks_before(self._blocks(z), n_before) for z in (k_BGTE, v_BGTE))
        mask_N1CS = self._mask(q_NXCE.shape[0], q_NXCE.device)
        y_NXCE = self.heads.attend(q_NXCE, k_NXSE, v_NXSE, attn_mask=mask_N1CS)
        return y_NXCE.unflatten(1, (B, -1)).permute(1, 2, 0, 3, 4).flatten(2, 3)[:, :, :T]

    def _blocks(self, z_BHTE):
        """(N, B, H, C, E), the last block filled up with zeros."""
        missing = -z_BHTE.shape[2] % self.block
        return F.pad(z_BHTE, (0, 0, 0, missing)).unflatten(2, (-1, self.block)).permute(2, 0, 1, 3, 4)

    def _blocks_before(self):
        """Earlier blocks into which the window of a block's first query reaches."""
        return -(-(self.window - 1) // self.block)

    def _mask(self, n_blocks, device):
        """(N, 1, C, S): True where a query of a block sees a key of that block and the ones before it."""
        C, P = self.block, self._blocks_before() * self.block
        s_S = torch.arange(-P, C, device=device)
        distance_CS = torch.arange(C, device=device).unsqueeze(1) - s_S
        in_window_CS = (distance_CS >= 0) & (distance_CS < self.window)
        exists_NS = torch.arange(0, n_blocks * C, C, device=device).unsqueeze(1) + s_S >= 0
        return (in_window_CS & exists_NS.unsqueeze(1)).unsqueeze(1)

    def start(self, batch_size):
        return self.heads.start(batch_size)

    def step(self, x_BD, state, context):  # noqa: ARG002
        """Scores depend on distances alone: the keys are held unrotated and counted from the oldest one."""
        x_B1D = x_BD.unsqueeze(1)
        k_BGWE = torch.cat([state["keys_BGTE"], self.heads.unrotated_keys(x_B1D)], dim=2)
        v_BGWE = torch.cat([state["values_BGTE"], self.heads.values(x_B1D)], dim=2)
        q_BH1E = self.heads.queries(x_B1D, first=k_BGWE.shape[2] - 1)
        y_BH1E = self.heads.attend(q_BH1E, rotate(k_BGWE, self.heads.base), v_BGWE)
        oldest = max(k_BGWE.shape[2] - (self.window - 1), 0)
        state = {"keys_BGTE": k_BGWE[:, :, oldest:], "values_BGTE": v_BGWE[:, :, oldest:]}
        return self.heads.join(y_BH1E).squeeze(1), state

    def state_size(self, T):
        """The W - 1 latest keys and values: the next token brings its own."""
        return self.heads.cache_size(min(T, self.window - 1))

    def flops(self, T):
        if self.window >= T:
            return self.heads.flops() + self.heads.score_flops(T)
        rows = -(-T // self.block) * self.block
        n_keys = (1 + self._blocks_before()) * self.block
        return self.heads.flops() + self.heads.score_flops(n_keys) * rows // T


def _with_blocks_before(z_NBGCE, n_before):
    """(N, B G, S, E): each block behind its `n_before` predecessors; zeros where there are none."""
    N = z_NBGCE.shape[0]
    padded = F.pad(z_NBGCE, (0, 0) * 4 + (n_before, 0))
    return torch.cat([padded[i : i + N] for i in range(n_before + 1)], dim=3).flatten(1, 2)
