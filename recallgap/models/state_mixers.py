"""State mixers: what follows the sequence mixer in a block and acts on each position.

Same contract as a mixer (recallgap/models/mixer.py), so they take (x_BTD, context).
Legend: B batch, T position, D model width, F inner width.
"""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from recallgap.errors import ConfigError
from recallgap.models.mixer import ParamRule, fill_

INIT_STD = 0.02


def residual_std(place):
    """Standard deviation of a projection into the residual stream: 0.02 / sqrt(2 layers) (GPT-2, 2.3)."""
    return INIT_STD / (2 * place.n_layers) ** 0.5


def linear_flops(*layers):
    """Operations a token of linear layers: a multiplication and an addition for each weight."""
    return sum(2 * layer.weight.numel() for layer in layers)


class SwiGLU(nn.Module):
    """y = W_out (SiLU(W_gate x) * W_in x) (Shazeer 2020, arXiv 2002.05202), without biases as in Llama."""

    @dataclass(frozen=True, kw_only=True)
    class Options:
        d_inner: int | None = None
        """Inner width F; None: 8/3 of the model's, rounded up to a multiple of 16 (as large as a 4x MLP)."""

        def __post_init__(self):
            if self.d_inner is not None and self.d_inner < 1:
                raise ConfigError(f"swiglu: d_inner is {self.d_inner}, but a width from 1 is needed")

    def __init__(self, d_model, options, place):
        super().__init__()
        d_inner = -(-8 * d_model // 48) * 16 if options.d_inner is None else options.d_inner
        self.gate = nn.Linear(d_model, d_inner, bias=False)
        self.inner = nn.Linear(d_model, d_inner, bias=False)
        self.out = nn.Linear(d_inner, d_model, bias=False)
        self.place = place

    def init_weights(self):
        nn.init.normal_(self.gate.weight, std=INIT_STD)
        nn.init.normal_(self.inner.weight, std=INIT_STD)
        nn.init.normal_(self.out.weight, std=residual_std(self.place))

    def forward(self, x_BTD, context):  # noqa: ARG002
        return self.out(F.silu(self.gate(x_BTD)) * self.inner(x_BTD))

    def state_size(self, T):  # noqa: ARG002
        return 0

    def flops(self, T):  # noqa: ARG002
        return linear_flops(self.gate, self.inner, self.out)


class MLP(nn.Module):
    """y = W_out GELU(W_in x + b) + b (GPT-2)."""

    @dataclass(frozen=True, kw_only=True)
    class Options:
        expand: int = 4
        """Inner width as a multiple of the model's."""

        def __post_init__(self):
            _refuse_no_width("mlp", self.expand)

    def __init__(self, d_model, options, place):
        super().__init__()
        self.inner = nn.Linear(d_model, options.expand * d_model)
        self.out = nn.Linear(options.expand * d_model, d_model)
        self.place = place

    def init_weights(self):
        nn.init.normal_(self.inner.weight, std=INIT_STD)
        nn.init.normal_(self.out.weight, std=residual_std(self.place))
        nn.init.zeros_(self.inner.bias)
        nn.init.zeros_(self.out.bias)

    def forward(self, x_BTD, context):  # noqa: ARG002
        return self.out(F.gelu(self.inner(x_BTD), approximate="tanh"))

    def state_size(self, T):  # noqa: ARG002
        return 0

    def flops(self, T):  # noqa: ARG002
        return linear_flops(self.inner, self.out)


class RWKVChannelMix(nn.Module):
    """y_t = sigmoid(W_r x^r_t) * W_v relu(W_k x^k_t)^2,  x^._t = m. x_t + (1 - m.) x_{t-1}.

    RWKV-4 (arXiv 2305.13048, section 3.1); initialised as RWKV-LM's RWKV-v4/src/model.py.
    """

    @dataclass(frozen=True, kw_only=True)
    class Options:
        expand: int = 4
        """Inner width as a multiple of the model's."""

        def __post_init__(self):
            _refuse_no_width("rwkv_channel_mix", self.expand)

    def __init__(self, d_model, options, place):
        super().__init__()
        self.mix_key = nn.Parameter(torch.empty(d_model))
        self.mix_receptance = nn.Parameter(torch.empty(d_model))
        self.key = nn.Linear(d_model, options.expand * d_model, bias=False)
        self.receptance = nn.Linear(d_model, d_model, bias=False)
        self.value = nn.Linear(options.expand * d_model, d_model, bias=False)
        self.place = place

    def init_weights(self):
        d_inner, d_model = self.key.weight.shape
        depth_left = 1 - self.place.layer / self.place.n_layers
        ramp_D = (
            torch.arange(d_model, dtype=torch.float64, device=self.mix_key.device) / d_model
        ) ** depth_left
        fill_(self.mix_key, ramp_D)
        fill_(self.mix_receptance, ramp_D)
        nn.init.orthogonal_(self.key.weight, gain=(d_inner / d_model) ** 0.5)
        nn.init.zeros_(self.receptance.weight)
        nn.init.zeros_(self.value.weight)

    def forward(self, x_BTD, context):  # noqa: ARG002
        return self._mix(x_BTD, F.pad(x_BTD, (0, 0, 1, -1)))

    def _mix(self, x, previous):
        x_key = previous + self.mix_key * (x - previous)
        x_receptance = previous + self.mix_receptance * (x - previous)
        key = torch.relu(self.key(x_key)).square()
        return torch.sigmoid(self.receptance(x_receptance)) * self.value(key)

    def start(self, batch_size):
        return {"previous_BD": self.mix_key.new_zeros(batch_size, self.mix_key.numel())}

    def step(self, x_BD, state, context):  # noqa: ARG002
        return self._mix(x_BD, state["previous_BD"]), {"previous_BD": x_BD}

    def state_size(self, T):  # noqa: ARG002
        return self.mix_key.numel()

    def flops(self, T):  # noqa: ARG002
        return linear_flops(self.key, self.receptance, self.value)

    def param_rules(self):
        return {"mix_": ParamRule()}


class Identity(nn.Module):
    """y = 0: the block's residual is all that passes."""

    @dataclass(frozen=True, kw_only=True)
    class Options:
        pass

    def __init__(self, d_model, options, place):  # noqa: ARG002
        super().__init__()

    def forward(self, x_BTD, context):  # noqa: ARG002
        return torch.zeros_like(x_BTD)

    def init_weights(self):
        pass

    def state_size(self, T):  # noqa: ARG002
        return 0

    def flops(self, T):  # noqa: ARG002
        return 0


class Echo(Identity):
    """y = x: the block adds its normed stream to itself, as zoology's does where its state mixer is torch's
    Identity."""

    def forward(self, x_BTD, context):  # noqa: ARG002
        return x_BTD


def _refuse_no_width(kind, expand):
    if expand < 1:
        raise ConfigError(f"{kind}: expand is {expand}, but an inner width of at least the model's is needed")


STATE_MIXERS = {
    "swiglu": SwiGLU,
    "mlp": MLP,
    "rwkv_channel_mix": RWKVChannelMix,
    "identity": Identity,
    "echo": Echo,
}
