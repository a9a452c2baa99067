"""What the attending mixers share: projections into heads and out of them.

    q, k, v = W_q x, W_k x, W_v x        in H heads of width E = D / H; k and v in G <= H heads, each of which
                                         serves H / G query heads (arXiv 2305.13245)
    q, k    = RoPE(q), RoPE(k)           (arXiv 2104.09864)
    y       = W_o [head 1, ..., head H]

No biases, as in Llama (arXiv 2302.13971).
Legend: B batch, T position, D model width, H heads, G key-value heads, E head width.
"""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from recallgap.errors import ConfigError
from recallgap.models.mixer import heads_of
from recallgap.models.rotary import rotate
from recallgap.models.state_mixers import INIT_STD, linear_flops, residual_std


@dataclass(frozen=True, kw_only=True)
class HeadOptions:
    """Options of every mixer that attends."""

    n_heads: int = 8
    """Query heads, H."""
    n_kv_heads: int | None = None
    """Key and value heads, G; None: as many as query heads."""
    rotary_base: float = 10000.0
    """Base of the rotary frequencies."""
    qk_norm: bool = False
    """RMS-normalise queries and keys per head before rotating (arXiv 2302.05442, section 2)."""


class Heads(nn.Module):
    """The projections W_q, W_k, W_v and W_o of a mixer called `kind`."""

    def __init__(self, d_model, options, place, kind):
        super().__init__()
        self.n_heads, self.d_head = options.n_heads, heads_of(d_model, options.n_heads, kind)
        self.n_kv_heads = self.n_heads if options.n_kv_heads is None else options.n_kv_heads
        if self.n_kv_heads < 1 or self.n_heads % self.n_kv_heads:
            raise ConfigError(f"{kind}: {self.n_kv_heads} key-value heads do not divide {self.n_heads} heads")
        if self.d_head % 2:
            raise ConfigError(
                f"{kind}: {self.n_heads} heads of a width of {d_model} are {self.d_head} wide, "
                "but rotary positions turn pairs: choose n_heads or the width so that they are even"
            )
        self.base, self.place = options.rotary_base, place
        kv_width = self.n_kv_heads * self.d_head
        self.query = nn.Linear(d_model, d_model, bias=False)
        self.key = nn.Linear(d_model, kv_width, bias=False)
        self.value = nn.Linear(d_model, kv_width, bias=False)
        self.out = nn.Linear(d_model, d_model, bias=False)
        self.query_norm = nn.RMSNorm(self.d_head, eps=1e-5) if options.qk_norm else nn.Identity()
        self.key_norm = nn.RMSNorm(self.d_head, eps=1e-5) if options.qk_norm else nn.Identity()

    def reset_parameters(self):
        """GPT-2 (section 2.3): N(0, 0.02), the projection into the residual stream smaller with depth."""
        for linear in (self.query, self.key, self.value):
            nn.init.normal_(linear.weight, std=INIT_STD)
        nn.init.normal_(self.out.weight, std=residual_std(self.place))
        for norm in (self.query_norm, self.key_norm):
            if isinstance(norm, nn.RMSNorm):
                nn.init.ones_(norm.weight)

    def queries(self, x_BTD, first=0, positions_BT=None):
        """(B, H, T, E), rotated to their positions (see `rotate`)."""
        q_BTHE = self.query_norm(self.query(x_BTD).unflatten(-1, (self.n_heads, self.d_head)))
        return rotate(q_BTHE.transpose(1, 2), self.base, first, positions_BT)

    def keys(self, x_BTD, first=0):
        """(B, G, T, E), rotated to their positions."""
        return rotate(self.unrotated_keys(x_BTD), self.base, first)

    def unrotated_keys(self, x_BTD):
        """(B, G, T, E), as they are before rotation."""
        return self.key_norm(self.key(x_BTD).unflatten(-1, (self.n_kv_heads, self.d_head))).transpose(1, 2)

    def values(self, x_BTD):
        """(B, G, T, E)."""
        return self.value(x_BTD).unflatten(-1, (self.n_kv_heads, self.d_head)).transpose(1, 2)

    def attend(self, q_BHSE, k_BGTE, v_BGTE, **mask):
        """softmax(q k^T / sqrt(E)) v, (B, H, S, E); `mask` is is_causal or attn_mask as in PyTorch."""
        grouped = self.n_kv_heads != self.n_heads
        return F.scaled_dot_product_attention(q_BHSE, k_BGTE, v_BGTE, enable_gqa=grouped, **mask)

    def join(self, y_BHTE):
        """W_o of the heads side by side, (B, T, D)."""
        return self.out(y_BHTE.transpose(1, 2).flatten(2))

    def start(self, batch_size):
        """A cache of no keys and values."""
        empty = self.key.weight.new_empty(batch_size, self.n_kv_heads, 0, self.d_head)
        return {"keys_BGTE": empty, "values_BGTE": empty}

    def extended(self, cache, x_B1D):
        """The cache and the rotated key and the value of the token that follows."""
        k_BG1E = self.keys(x_B1D, first=cache["keys_BGTE"].shape[2])
        return {
            "keys_BGTE": torch.cat([cache["keys_BGTE"], k_BG1E], dim=2),
            "values_BGTE": torch.cat([cache["values_BGTE"], self.values(x_B1D)], dim=2),
        }

    def attend_last(self, cache, x_B1D):
        """W_o of the attention of the cache's last token, whose input is x: (B, 1, D)."""
        q_BH1E = self.queries(x_B1D, first=cache["keys_BGTE"].shape[2] - 1)
        return self.join(self.attend(q_BH1E, cache["keys_BGTE"], cache["values_BGTE"]))

    def flops(self):
        """Operations a token of the four projections."""
        return linear_flops(self.query, self.key, self.value, self.out)

    def score_flops(self, n_keys):
        """Operations of one query against n_keys keys: its scores and the mean of the values."""
        return 2 * 2 * self.n_heads * self.d_head * n_keys

    def cache_size(self, n_keys):
        """Numbers in n_keys keys and values."""
        return 2 * n_keys * self.n_kv_heads * self.d_head
