"""Attention inside blocks of tokens: the blocked windows of Zoology (arXiv 2312.04927), appendix F.

    y_t = W_o sum over t - (t mod W) <= s <= t of softmax(q_t k_s / sqrt(E)) v_s   rotated as `attention`

The context is cut into blocks of W tokens, and a token sees those of its own block up to itself. No layer and
no number of layers carries anything from one block into the next: what two neighbours may see of each other
hangs on where the cut falls, unlike in `sliding_attention`.
Legend: B batch, T position, D width, H heads, G key-value heads, E head width, W tokens of a block,
N blocks of a batch.
"""

from dataclasses import dataclass

from torch import nn
from torch.nn import functional as F

from recallgap.errors import ConfigError
from recallgap.models.heads import HeadOptions, Heads


class BlockAttention(nn.Module):
    """Softmax attention over the tokens of the present block, with rotary positions."""

    @dataclass(frozen=True, kw_only=True)
    class Options(HeadOptions):
        window: int = 128
        """Tokens of a block, W."""

        def __post_init__(self):
            if self.window < 1:
                raise ConfigError(f"block_attention: a block of {self.window} tokens holds no key")

    def __init__(self, d_model, options, place):
        super().__init__()
        self.heads = Heads(d_model, options, place, "block_attention")
        self.window = options.window

    def init_weights(self):
        self.heads.reset_parameters()

    def forward(self, x_BTD, context):  # noqa: ARG002
        """Scores depend on distances alone, so that a position counts from its block's first token."""
        B, T, _ = x_BTD.shape
        W = min(self.window, T)
        x_NWD = F.pad(x_BTD, (0, 0, 0, -T % W)).unflatten(1, (-1, W)).flatten(0, 1)
        q_NHWE, k_NGWE = self.heads.queries(x_NWD), self.heads.keys(x_NWD)
        y_NHWE = self.heads.attend(q_NHWE, k_NGWE, self.heads.values(x_NWD), is_causal=True)
        return self.heads.join(y_NHWE).unflatten(0, (B, -1)).flatten(1, 2)[:, :T]

    def start(self, batch_size):
        return self.heads.start(batch_size)

    def step(self, x_BD, state, context):  # noqa: ARG002
        x_B1D = x_BD.unsqueeze(1)
        if state["keys_BGTE"].shape[2] == self.window:
            state = self.start(x_BD.shape[0])
        state = self.heads.extended(state, x_B1D)
        return self.heads.attend_last(state, x_B1D).squeeze(1), state

    def state_size(self, T):
        """Keys and values of the present block: a whole one is dropped when the next token comes."""
        return self.heads.cache_size((T - 1) % self.window + 1)

    def flops(self, T):
        W = min(self.window, T)
        return (self.heads.flops() + self.heads.score_flops(W)) * (T + -T % W) // T
