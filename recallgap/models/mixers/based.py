"""Based's linear attention (Arora et al. 2024, arXiv 2402.18668, section 4): softmax to the second order.

    q, k = W_q x, W_k x in H heads of width E (d_feature);  v = W_v x in H heads of width F = D / H
    o_t  = sum_{s<=t} p(z_ts) v_s / sum_{s<=t} p(z_ts)     p(z) = 1 + z + z^2 / 2,  z_ts = q_t . k_s / sqrt(E)
    y    = W_o o

p(z) = phi(q) . phi(k), with phi(x) = [1, x_i, x_i^2 / sqrt(2), x_i x_j (i < j)] of x / E^{1/4}: these are
P = 1 + E + E (E + 1) / 2 numbers, 153 for E = 16 (the authors' code has x_i x_j twice: 273). Hence a state
S_t = S_{t-1} + phi(k_t) [v_t, 1]^T, and a form in chunks: p within one, S between them. As p >= 1/2, nothing
is divided by zero, and their epsilon is left out. Initialised as their models are: N(0, 0.02), W_o by
1 / sqrt(2 layers) less. Between these layers their models have gated short convolutions and windows of
attention; here those are mixers of their own, and a Based model is a list of layers.
Legend: B batch, T position, C position in a chunk, D width, H heads, E key width, F value width, P features.
"""

from dataclasses import dataclass

import torch
from torch import nn

from recallgap.errors import ConfigError
from recallgap.models.chunks import heads_first, run
from recallgap.models.mixer import heads_of, wide
from recallgap.models.state_mixers import INIT_STD, linear_flops, residual_std

CHUNK = 64


class Based(nn.Module):
    """y = W_o (sum over the past of p(q_t . k_s / sqrt(E)) v_s / the sum of p), p(z) = 1 + z + z^2 / 2."""

    @dataclass(frozen=True, kw_only=True)
    class Options:
        n_heads: int = 16
        """Heads, H."""
        d_feature: int = 16
        """Width E of a head's queries and keys; the state grows with its square."""

        def __post_init__(self):
            if self.d_feature < 1:
                raise ConfigError(f"based: d_feature is {self.d_feature}, but at least 1 is needed")

    def __init__(self, d_model, options, place):
        super().__init__()
        self.n_heads, self.d_feature, self.place = options.n_heads, options.d_feature, place
        self.d_value = heads_of(d_model, options.n_heads, "based")
        self.query, self.key = (
            nn.Linear(d_model, self.n_heads * self.d_feature, bias=False) for _ in range(2)
        )
        self.value, self.out = (nn.Linear(d_model, d_model, bias=False) for _ in range(2))

    def init_weights(self):
        for linear in (self.query, self.key, self.value):
            nn.init.normal_(linear.weight, std=INIT_STD)
        nn.init.normal_(self.out.weight, std=residual_std(self.place))

    def forward(self, x_BTD, context):  # noqa: ARG002
        return self.out(run(_Rule, CHUNK, *self._project(x_BTD)).flatten(2).to(x_BTD.dtype))

    def _project(self, x_BTD):
        """q / E^{1/4}, k / E^{1/4} and v, (B, T, H, E or F)."""
        heads = (self.n_heads, -1)
        q_BTHE, k_BTHE = (
            wide(f(x_BTD)).unflatten(-1, heads) * self.d_feature**-0.25 for f in (self.query, self.key)
        )
        return q_BTHE, k_BTHE, wide(self.value(x_BTD)).unflatten(-1, heads)

    def start(self, batch_size):
        q_BHE1 = wide(self.query.weight.new_empty(batch_size, self.n_heads, self.d_feature, 1))
        return {"state_BHPF": q_BHE1.new_zeros(*features(q_BHE1).shape[:3], self.d_value + 1)}

    def step(self, x_BD, state, context):  # noqa: ARG002
        q_BHE1, k_BHE1, v_BHF1 = (z_B1HX.permute(0, 2, 3, 1) for z_B1HX in self._project(x_BD.unsqueeze(1)))
        state_BHPF = state["state_BHPF"] + features(k_BHE1) @ with_one(v_BHF1.mT)
        o_BH1F = divided(features(q_BHE1).mT @ state_BHPF)
        return self.out(o_BH1F.flatten(1).to(x_BD.dtype)), {"state_BHPF": state_BHPF}

    def state_size(self, T):  # noqa: ARG002
        return self.n_heads * n_features(self.d_feature) * (self.d_value + 1)

    def flops(self, T):
        within = min(T, CHUNK) * (self.d_feature + self.d_value + 1)
        between = 2 * n_features(self.d_feature) * (self.d_value + 1)
        return linear_flops(self.query, self.key, self.value, self.out) + 2 * self.n_heads * (
            within + between
        )


def n_features(E):
    return 1 + E + E * (E + 1) // 2


def features(x_BHEC):
    """phi of each column, (B, H, P, C): time stands last, so that each product below is of long rows."""
    B, H, E, C = x_BHEC.shape
    phi_BHPC = x_BHEC.new_empty(B, H, n_features(E), C)
    phi_BHPC[:, :, 0] = 1
    phi_BHPC[:, :, 1 : 1 + E] = x_BHEC
    for i, rows in _products(E):
        phi_BHPC[:, :, rows] = x_BHEC[:, :, i:] * x_BHEC[:, :, i : i + 1]
        phi_BHPC[:, :, rows.start] *= 0.5**0.5
    return phi_BHPC


def features_backward(x_BHEC, dphi_BHPC):
    """The gradient of x. Overwrites dphi."""
    E = x_BHEC.shape[2]
    dx_BHEC = dphi_BHPC[:, :, 1 : 1 + E].clone()
    for i, rows in _products(E):
        dproducts_BHXC = dphi_BHPC[:, :, rows]
        dproducts_BHXC[:, :, 0] *= 0.5**0.5
        dx_BHEC[:, :, i] += (dproducts_BHXC * x_BHEC[:, :, i:]).sum(2)
        dx_BHEC[:, :, i:].addcmul_(dproducts_BHXC, x_BHEC[:, :, i : i + 1])
    return dx_BHEC


def _products(E):
    """For each channel i the rows of phi that hold x_i x_j, j = i .. E - 1."""
    start = 1 + E
    for i in range(E):
        yield i, slice(start, start + E - i)
        start += E - i


def with_one(v_BHCF):
    """v with a last column of ones, whose sum is the denominator."""
    return torch.cat([v_BHCF, torch.ones_like(v_BHCF[..., :1])], dim=-1)


def divided(sums_BHCF):
    return sums_BHCF[..., :-1] / sums_BHCF[..., -1:]


class _Rule:
    @staticmethod
    def start(q_BTHE, k_BTHE, v_BTHF):
        B, _, H, E = k_BTHE.shape
        return q_BTHE.new_zeros(B, H, n_features(E), v_BTHF.shape[-1] + 1)

    @classmethod
    def forward(cls, S, q, k, v):
        q, k, v = *map(time_last, (q, k)), with_one(heads_first(v))
        _, p = cls._p(q, k)
        return divided(p @ v + features(q).mT @ S).transpose(1, 2), S + features(k) @ v

    @classmethod
    def backward(cls, S, end, dend, o, do, q, k, v):  # noqa: ARG003
        q, k, v, o, do = *map(time_last, (q, k)), with_one(heads_first(v)), heads_first(o), heads_first(do)
        phi_q, phi_k = features(q), features(k)
        one_and_z, p = cls._p(q, k)
        denominator = p.sum(-1, keepdim=True) + phi_q.mT @ S[..., -1:]
        dsums = torch.cat([do, -(do * o).sum(-1, keepdim=True)], dim=-1).div_(denominator)
        dz = (dsums @ v.mT).mul_(one_and_z).tril_()
        dq = (k @ dz.mT).add_(features_backward(q, S @ dsums.mT))
        dk = (q @ dz).add_(features_backward(k, dend @ v.mT))
        dv = (p.mT @ dsums + phi_k.mT @ dend)[..., :-1]
        dq, dk = (d.permute(0, 3, 1, 2) for d in (dq, dk))
        return phi_q @ dsums + dend, dq, dk, dv.transpose(1, 2)

    @staticmethod
    def _p(q_BHEC, k_BHEC):
        """1 + z, and p(z) = ((1 + z)^2 + 1) / 2 for the past, else 0."""
        one_and_z = (q_BHEC.mT @ k_BHEC).add_(1)
        return one_and_z, one_and_z.square().add_(1).mul_(0.5).tril_()


def time_last(x_BTHE):
    """(B, H, E, T), contiguous."""
    return x_BTHE.permute(0, 2, 3, 1).contiguous()
