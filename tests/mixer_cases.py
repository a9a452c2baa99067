"""What the contract tests build: every mixer and state mixer in its variants, small."""

import torch
from torch import nn

from recallgap.models.mixer import MixerContext, Place, options_of
from recallgap.models.mixers import MIXERS
from recallgap.models.state_mixers import STATE_MIXERS

D_MODEL, CONTEXT_LEN, VOCAB_SIZE = 16, 24, 7
TABLE = {**MIXERS, **STATE_MIXERS}
CASES = {
    "attention": [{"n_heads": 2}, {"n_heads": 4, "n_kv_heads": 2, "qk_norm": True}],
    "autocorr_conv": [{"n_lags": 3}, {"n_lags": 30}],
    "base_conv": [{}, {"kernel_len": None}, {"kernel_len": None, "implicit": True}],
    "block_attention": [{"n_heads": 2, "window": 5}, {"n_heads": 4, "n_kv_heads": 2, "window": 12}],
    "rwkv": [{}],
    "selective_attention": [
        {"n_heads": 2, "selection": "full"},
        {"n_heads": 2, "selection": "random", "rate": 0.5},
        {"n_heads": 2, "selection": "programmatic"},
        {"n_heads": 2, "selection": "learned", "k": 4},
    ],
    "sliding_attention": [{"n_heads": 2, "window": 5}, {"n_heads": 4, "n_kv_heads": 2, "window": 12}],
    "retnet": [{"n_heads": 2}, {"n_heads": 4, "d_key": 6, "d_value": 3}],
    "delta_net": [{"n_heads": 2}, {"n_heads": 4, "d_key": 3, "d_value": 5, "conv_len": 2}],
    "gated_delta_net": [{"n_heads": 2}, {"n_heads": 1, "n_value_heads": 2, "d_key": 5, "d_value": 6}],
    "gla": [{"n_heads": 2}, {"n_heads": 2, "d_key": 3, "d_value": 5, "gate_rank": 4, "gate_root": 1.0}],
    "mamba2": [
        {"d_head": 8, "d_state": 4},
        {"expand": 3, "d_head": 4, "d_state": 5, "n_groups": 2, "conv_len": 3},
    ],
    "rwkv7": [{"d_head": 8, "value_residual": False}],
    "based": [{"n_heads": 2, "d_feature": 3}],
    "long_conv": [{"kernel_dropout": 0.0}, {"n_kernels": 2, "kernel_dropout": 0.5}],
    "hyena": [{}, {"order": 3, "short_len": 4, "n_features": 5, "sin_freq": 14.0, "filter_std": 0.02}],
    "h3": [{"d_state": 8}, {"d_state": 6, "head_dim": 2}],
    "swiglu": [{}],
    "mlp": [{}],
    "rwkv_channel_mix": [{}],
    "identity": [{}],
    "echo": [{}],
}
"""Options of each variant to test. A name without a row fails test_every_mixer_has_a_case."""


def variants():
    return [(name, options) for name, rows in CASES.items() for options in rows]


def build_mixer(name, options, *, d_model=D_MODEL, context_len=CONTEXT_LEN, layer=1, n_layers=3, seed=0):
    """A mixer with its own initialisation, float64."""
    torch.manual_seed(seed)
    cls = TABLE[name]
    place = Place(layer=layer, n_layers=n_layers, context_len=context_len)
    mixer = cls(d_model, options_of(name, cls, options), place).double()
    mixer.init_weights()
    return mixer


def shaken(mixer, seed=1):
    """The mixer with every parameter moved off its initial value, so that none is zero by design."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in mixer.parameters():
            p.add_(0.1 * torch.randn(p.shape, generator=generator, dtype=torch.float64).to(p.dtype))
    return mixer


def random_input(B=2, T=CONTEXT_LEN, d_model=D_MODEL, seed=2):
    """(x_BTD, context) of float64 activations and few distinct ids, so that tokens repeat."""
    generator = torch.Generator().manual_seed(seed)
    x_BTD = torch.randn(B, T, d_model, generator=generator, dtype=torch.float64)
    ids_BT = torch.randint(0, VOCAB_SIZE, (B, T), generator=generator)
    return x_BTD, MixerContext(ids_BT=ids_BT)


def run(mixer, x_BTD, context, seed=3):
    """One forward with the random state fixed, so that noise and random selection repeat."""
    torch.manual_seed(seed)
    return mixer(x_BTD, MixerContext(ids_BT=context.ids_BT))


class Leaky(nn.Module):
    """A mixer that sees one token ahead: the contract must find it out."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(D_MODEL, D_MODEL).double()

    def forward(self, x_BTD, context):
        return self.linear(x_BTD.roll(-1, dims=1))


class Dead(nn.Module):
    """A mixer with a parameter that nothing depends on."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(D_MODEL, D_MODEL).double()
        self.unused = nn.Parameter(torch.zeros(3))

    def forward(self, x_BTD, context):
        return self.linear(x_BTD)
