"""Convolution with filters from the input's autocorrelation (Zoology, arXiv 2312.04927, section H.8.2).

    q, k, v   = W_q x, W_k x, W_v x
    z_t[s]    = sum over i in s .. t of q_i . q_{i-s}            autocorrelation of the past at lag s
    s_1 .. s_L = the L lags 1 <= s <= t with the largest z_t[s]   a hard choice: no gradient
    y_t       = sum over l of a_l v_{t-s_l+1},   a = softmax over l of q_t . k_{t-s_l} / sqrt(D)

Each lag s is a pair of filters: the keys shifted by s and the values by s - 1, so that the value that follows
a matching key arrives. Position 0 has no lag and gives 0. Two forms:

    causal=True   as above: each position chooses by its own past. O(T^2 D), like attention, since each has
                  an autocorrelation of its own: the diagonals of q q^T, summed down the rows
    causal=False  the paper's: one z = z_{T-1} of the whole sequence, by FFT in O(T log T), serves every
                  position. Later tokens then choose the lags of earlier ones; it warns

As in the authors' notebook the autocorrelation is that of q, over all channels, with lag 0 left out. There a
lag before the start meets zeros that take part in the softmax; here it is left out. The paper's model is
built by hand; 1 / sqrt(D) and the initial weights are ours.
Legend: B batch, T position, D width, L lags.
"""

import functools
import warnings
from dataclasses import dataclass

import torch
from torch import nn

from recallgap.errors import ConfigError
from recallgap.models.convolution import fft_length, real_fft_flops
from recallgap.models.mixer import wide
from recallgap.models.state_mixers import linear_flops


class AutocorrConv(nn.Module):
    """y_t = sum over the chosen lags s of softmax(q_t . k_{t-s}) v_{t-s+1}."""

    @dataclass(frozen=True, kw_only=True)
    class Options:
        n_lags: int = 8
        """Lags a position chooses, L: the t of Theorem H.38."""
        causal: bool = True
        """Each position chooses by its past; False: all by the whole sequence, as in the paper."""

        def __post_init__(self):
            if self.n_lags < 1:
                raise ConfigError(f"autocorr_conv: n_lags is {self.n_lags}, but at least 1 lag is needed")

    def __init__(self, d_model, options, place):  # noqa: ARG002
        super().__init__()
        self.n_lags, self.causal = options.n_lags, options.causal
        self.query, self.key, self.value = (nn.Linear(d_model, d_model, bias=False) for _ in range(3))
        if not options.causal:
            warn_not_causal()

    def init_weights(self):
        for linear in (self.query, self.key, self.value):
            linear.reset_parameters()

    def forward(self, x_BTD, context):  # noqa: ARG002
        q_BTD, k_BTD, v_BTD = self.query(x_BTD), self.key(x_BTD), self.value(x_BTD)
        a_BTT = weights(q_BTD @ k_BTD.mT / q_BTD.shape[-1] ** 0.5, self._allowed(q_BTD))
        # the value that goes with key j is the next one; no position may choose the last key
        return a_BTT[..., :-1].to(v_BTD.dtype) @ v_BTD[:, 1:]

    @torch.no_grad()
    def _allowed(self, q_BTD):
        """True at (t, j) where t - j is one of the lags that t chooses, (B, T, T)."""
        B, T, _ = q_BTD.shape
        with torch.autocast(q_BTD.device.type, enabled=False):
            correlation = prefix_autocorrelation if self.causal else autocorrelation
            z_BXT = correlation(wide(q_BTD))
        lags_BXL = z_BXT[..., 1:].topk(min(self.n_lags, T - 1), dim=-1).indices + 1
        j_BTL = torch.arange(T, device=q_BTD.device).unsqueeze(1) - lags_BXL
        # a lag that reaches before the start goes to a column of its own, which is cut off
        allowed_BTT = torch.zeros(B, T, T + 1, dtype=torch.bool, device=q_BTD.device)
        return allowed_BTT.scatter_(2, torch.where(j_BTL < 0, T, j_BTL), True)[..., :T]

    def start(self, batch_size):
        empty_B0D = self.query.weight.new_empty(batch_size, 0, self.query.in_features)
        z_B0 = wide(empty_B0D[..., 0])
        return {"q_BTD": empty_B0D, "k_BTD": empty_B0D, "v_BTD": empty_B0D, "z_BT": z_B0}

    def step(self, x_BD, state, context):  # noqa: ARG002
        """Keeps the past and z: a token adds its products with earlier queries to the sums of their lags."""
        if not self.causal:
            raise ConfigError("autocorr_conv: causal=False needs the whole sequence, so it has no step")
        now = {"q_BTD": self.query(x_BD), "k_BTD": self.key(x_BD), "v_BTD": self.value(x_BD)}
        past = {name: torch.cat([state[name], x.unsqueeze(1)], dim=1) for name, x in now.items()}
        products_BT = (wide(past["q_BTD"]) @ wide(now["q_BTD"]).unsqueeze(2)).squeeze(2).flip(1)
        z_BT = products_BT + nn.functional.pad(state["z_BT"], (0, 1))
        T = z_BT.shape[1]
        lags_BL = z_BT[:, 1:].topk(min(self.n_lags, T - 1), dim=-1).indices + 1
        j_BL = T - 1 - lags_BL
        k_BLD, v_BLD = _rows(past["k_BTD"], j_BL), _rows(past["v_BTD"], j_BL + 1)
        scores_BL = (k_BLD @ now["q_BTD"].unsqueeze(2)).squeeze(2) / x_BD.shape[-1] ** 0.5
        y_BD = (scores_BL.softmax(-1).unsqueeze(1) @ v_BLD).squeeze(1)
        return y_BD, {**past, "z_BT": z_BT}

    def state_size(self, T):
        return (3 * self.query.in_features + 1) * T

    def flops(self, T):
        """Scores, values and products of queries as full squares; a transform of q in place of the last."""
        D, n = self.query.in_features, fft_length(2 * T)
        square = 2 * D * T
        transforms = D * real_fft_flops(n) / T + real_fft_flops(n) / T
        projections = linear_flops(self.query, self.key, self.value)
        return projections + 2 * square + (square if self.causal else transforms)


def weights(scores_BTT, allowed_BTT):
    """Softmax over the allowed keys of each row; 0 in a row without any."""
    scores_BTT = wide(scores_BTT).masked_fill(~allowed_BTT, torch.finfo(scores_BTT.dtype).min)
    return scores_BTT.softmax(-1) * allowed_BTT


def prefix_autocorrelation(q_BTD):
    """z_t[s] of every prefix, (B, T, T); -inf where s > t, which is no lag of it."""
    T = q_BTD.shape[1]
    t_T = torch.arange(T, device=q_BTD.device)
    i_TT = t_T.unsqueeze(1) - t_T
    products_BTT = (q_BTD @ q_BTD.mT).gather(2, i_TT.clamp(min=0).expand(len(q_BTD), T, T))
    z_BTT = products_BTT.masked_fill_(i_TT < 0, 0.0).cumsum_(1)
    return z_BTT.masked_fill_(i_TT < 0, -torch.inf)


def autocorrelation(q_BTD):
    """z[s] of the whole sequence for s < T, (B, 1, T); padded, so that nothing wraps around."""
    T = q_BTD.shape[1]
    n = fft_length(2 * T)
    q_BDF = torch.fft.rfft(q_BTD.mT, n=n)
    return torch.fft.irfft(q_BDF.abs().square().sum(1, keepdim=True), n=n)[..., :T]


def _rows(x_BTD, t_BL):
    return x_BTD.gather(1, t_BL.unsqueeze(-1).expand(-1, -1, x_BTD.shape[2]))


@functools.cache
def warn_not_causal():
    """Once a process."""
    warnings.warn(
        "autocorr_conv with causal=False chooses lags by the autocorrelation of the whole sequence, as the "
        "paper does: later tokens change earlier predictions. Its losses are not those of a causal model and "
        "must not be compared with theirs. The default, causal=True, chooses by the past.",
        stacklevel=2,
    )
