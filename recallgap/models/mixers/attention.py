"""Causal softmax attention (Vaswani et al. 2017, arXiv 1706.03762) as in Llama (arXiv 2302.13971).

    q, k, v = heads of x, q and k rotated to their positions            (recallgap/models/heads.py)
    y       = W_o softmax(q k^T / sqrt(E), over the past) v

The baseline of the paper (Zoology section 3.1) is this with 16 heads at 355M parameters.
Legend: B batch, T position, D width, H heads, G key-value heads, E head width.
"""

from torch import nn

from recallgap.models.heads import HeadOptions, Heads


class Attention(nn.Module):
    """y = W_o softmax(q k^T / sqrt(E)) v over the past, with rotary positions."""

    Options = HeadOptions

    def __init__(self, d_model, options, place):
        super().__init__()
        self.heads = Heads(d_model, options, place, "attention")

    def init_weights(self):
        self.heads.reset_parameters()

    def forward(self, x_BTD, context):  # noqa: ARG002
        q_BHTE = self.heads.queries(x_BTD)
        k_BGTE, v_BGTE = self.heads.keys(x_BTD), self.heads.values(x_BTD)
        return self.heads.join(self.heads.attend(q_BHTE, k_BGTE, v_BGTE, is_causal=True))

    def state_size(self, T):
        return self.heads.cache_size(T)

    def flops(self, T):
        return self.heads.flops() + self.heads.score_flops(T)

    def start(self, batch_size):
        return self.heads.start(batch_size)

    def step(self, x_BD, state, context):  # noqa: ARG002
        state = self.heads.extended(state, x_BD.unsqueeze(1))
        return self.heads.attend_last(state, x_BD.unsqueeze(1)).squeeze(1), state
