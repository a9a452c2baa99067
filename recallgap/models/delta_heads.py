"""What the delta nets share: queries, keys and values, each through a short convolution, in heads.

    q, k, v = SiLU(conv W_q x), SiLU(conv W_k x), SiLU(conv W_v x)
    q, k    = q / (|q| sqrt(K)), k / |k|        within each head, |k|^2 + 1e-6 under the root

A head of queries and keys serves H / G heads of values.
Legend: B batch, T position, H value heads, G key heads, K key width, V value width of a head.
"""

from torch import nn

from recallgap.errors import ConfigError
from recallgap.models.mixer import wide
from recallgap.models.short_conv import ShortConv

UNIT_EPS = 1e-6
PASTS = "past_query", "past_key", "past_value"
"""Names in the state of what each convolution holds."""


class DeltaHeads(nn.Module):
    """Queries and keys of length 1 / sqrt(K) and 1, and values, from (B, T, D) or one column (B, D)."""

    def __init__(self, kind, d_model, n_key_heads, n_value_heads, d_key, d_value, conv_len):
        super().__init__()
        if min(n_key_heads, n_value_heads, d_key, d_value) < 1 or n_value_heads % n_key_heads:
            raise ConfigError(
                f"{kind}: {n_key_heads} key heads of width {d_key} cannot serve "
                f"{n_value_heads} value heads of width {d_value}"
            )
        self.G, self.H, self.K, self.V = n_key_heads, n_value_heads, d_key, d_value
        self.query = nn.Linear(d_model, self.G * self.K, bias=False)
        self.key = nn.Linear(d_model, self.G * self.K, bias=False)
        self.value = nn.Linear(d_model, self.H * self.V, bias=False)
        self.query_conv = ShortConv(self.G * self.K, conv_len, bias=False)
        self.key_conv = ShortConv(self.G * self.K, conv_len, bias=False)
        self.value_conv = ShortConv(self.H * self.V, conv_len, bias=False)

    def linears(self):
        return self.query, self.key, self.value

    def convs(self):
        return self.query_conv, self.key_conv, self.value_conv

    def forward(self, x_BTD):
        pairs = zip(self.linears(), self.convs(), strict=True)
        return self._in_heads(*(conv(linear(x_BTD)) for linear, conv in pairs))

    def _in_heads(self, q, k, v):
        q, k, v = (wide(x) for x in (q, k, v))
        q, k = (self._serve(unit(x.unflatten(-1, (self.G, self.K)))) for x in (q, k))
        return q * self.K**-0.5, k, v.unflatten(-1, (self.H, self.V))

    def _serve(self, x):
        return x if self.G == self.H else x.repeat_interleave(self.H // self.G, dim=-2)

    def start(self, batch_size):
        return {name: conv.start(batch_size) for name, conv in zip(PASTS, self.convs(), strict=True)}

    def step(self, x_BD, state):
        """One column of `forward`, and the inputs to hold for the next."""
        columns, pasts = [], {}
        for name, linear, conv in zip(PASTS, self.linears(), self.convs(), strict=True):
            column, pasts[name] = conv.step(linear(x_BD), state[name])
            columns.append(column)
        return self._in_heads(*columns), pasts

    def state_size(self):
        return sum(conv.state_size() for conv in self.convs())


def unit(x):
    """Vectors of length 1, or shorter where they were near 0."""
    return x * (x.square().sum(-1, keepdim=True) + UNIT_EPS).rsqrt()
