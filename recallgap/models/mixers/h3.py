"""H3: a shift and a diagonal state-space model with two gates (Fu et al. 2022, arXiv 2212.14052, section 3).

    q, k, v = W_q x, W_k x, W_v x                       with biases
    s_t     = shift of s_{t-1} + b k_t                  k'_t = c . s_t + d_1 k_t; N numbers a channel
    kv_t    = k'_t v_t^T                                in heads of M channels, M x M products each
    z_t     = A z_{t-1} + B kv_t                        o_t = 2 Re(C . z_t) + d_2 kv_t; N / 2 complex modes
    y_t     = W_o (q_t^T o_t) + b_o

A = (1 + dt a / 2) / (1 - dt a / 2), B = dt beta / (1 - dt a / 2), a = -exp(log_rate) + i freq (bilinear).
Both models are convolutions, and are trained as such: tap j of the first is sum_n b_n c_{n+j}, of the second
2 Re sum_n C_n B_n A_n^j; each d is added to the first tap.
Initialised as in safari (src/models/sequence/h3.py and ssm/; Zoology's is the same): b = e_1, c as that of a
convolution, a_n = -1/2 + i pi n, beta = 1, C complex normal, dt log-uniform in 1e-3 .. 0.1, d ~ N(0, 1); dt,
a, b and beta learn at 1e-3 at most. Its language models start every matrix, W_o too, as N(0, 0.02).
Differs: powers of A by products in complex128, where exp(j log A) in complex64 is off by 1e-4 at j = 2048 and
has no gradient at A = 0; a head's channels lie together in y, which safari strews (W_o decides).
Legend: B batch, T position, D width, H = D / M heads, M head width, N state size, P = N / 2 modes,
Q = 2 P their real and imaginary parts.
"""

import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from recallgap.errors import ConfigError
from recallgap.models.convolution import (
    causal_conv,
    conv_flops,
    conv_step,
    from_channels,
    to_channels,
    with_skip,
)
from recallgap.models.mixer import ParamRule, fill_, wide
from recallgap.models.state_mixers import INIT_STD, linear_flops


class H3(nn.Module):
    """y = W_o (q * diag_ssm(shift_ssm(k) * v))."""

    @dataclass(frozen=True, kw_only=True)
    class Options:
        d_state: int = 64
        """Numbers in the state of each model, N: taps of the shift, twice the complex modes. Even."""
        head_dim: int = 1
        """Channels of a head, M; each holds M x M diagonal states."""
        dt_min: float = 1e-3
        """Shortest initial time step."""
        dt_max: float = 0.1
        """Longest."""

        def __post_init__(self):
            if self.d_state < 2 or self.d_state % 2:
                raise ConfigError(f"h3: d_state is {self.d_state}, but modes come in pairs: an even number")
            if not 0 < self.dt_min <= self.dt_max:
                raise ConfigError(
                    f"h3: dt_min {self.dt_min} and dt_max {self.dt_max}, but 0 < dt_min <= dt_max is needed"
                )

    def __init__(self, d_model, options, place):  # noqa: ARG002
        super().__init__()
        self.options, self.M, self.N = options, options.head_dim, options.d_state
        if self.M < 1 or d_model % self.M:
            raise ConfigError(f"h3: heads of {self.M} channels do not divide a width of {d_model}")
        H, P = d_model // self.M, self.N // 2
        self.query, self.key, self.value, self.out = (nn.Linear(d_model, d_model) for _ in range(4))
        self.shift_in_DN = nn.Parameter(torch.empty(d_model, self.N))
        self.shift_out_DN = nn.Parameter(torch.empty(d_model, self.N))
        self.shift_skip_D = nn.Parameter(torch.empty(d_model))
        self.log_dt_H = nn.Parameter(torch.empty(H))
        self.log_rate_HP = nn.Parameter(torch.empty(H, P))
        self.freq_HP = nn.Parameter(torch.empty(H, P))
        self.diag_in_HP2 = nn.Parameter(torch.empty(H, P, 2))
        self.diag_out_HP2 = nn.Parameter(torch.empty(H, P, 2))
        self.diag_skip_H = nn.Parameter(torch.empty(H))

    def init_weights(self):
        for linear in (self.query, self.key, self.value, self.out):
            nn.init.normal_(linear.weight, std=INIT_STD)
            nn.init.zeros_(linear.bias)
        fill_(self.shift_in_DN, F.one_hot(torch.tensor(0), self.N).to(self.shift_in_DN))
        nn.init.uniform_(self.shift_out_DN, -(self.N**-0.5), self.N**-0.5)
        nn.init.uniform_(self.log_dt_H, math.log(self.options.dt_min), math.log(self.options.dt_max))
        nn.init.constant_(self.log_rate_HP, math.log(0.5))
        fill_(self.freq_HP, torch.pi * torch.arange(self.N // 2, device=self.freq_HP.device))
        fill_(self.diag_in_HP2, torch.tensor([1.0, 0.0], device=self.diag_in_HP2.device))
        nn.init.normal_(self.diag_out_HP2, std=0.5**0.5)
        nn.init.normal_(self.shift_skip_D)
        nn.init.normal_(self.diag_skip_H)

    def forward(self, x_BTD, context):  # noqa: ARG002
        T = x_BTD.shape[1]
        q_BDT, k_BDT, v_BDT = (to_channels(linear, x_BTD) for linear in (self.query, self.key, self.value))
        k_BDT = causal_conv(k_BDT, self._shift_kernel())
        return from_channels(self.out, self._attend(q_BDT, k_BDT, v_BDT, self._diag_kernel(T)))

    def _attend(self, q_BDT, k_BDT, v_BDT, kernel_HT):
        """q^T (diagonal model of k v^T) in each head; all lie in memory as (D, B, T)."""
        B, _, T = q_BDT.shape
        q, k, v = (z.transpose(0, 1).unflatten(0, (-1, self.M)) for z in (q_BDT, k_BDT, v_BDT))
        kv_HMMBT = k.unsqueeze(2) * v.unsqueeze(1)
        o_rows = causal_conv(kv_HMMBT.flatten(1, 3).transpose(0, 1), kernel_HT)
        o_HMMBT = o_rows.transpose(0, 1).unflatten(1, (self.M, self.M, B))
        y_HMBT = q * o_HMMBT.squeeze(2) if self.M == 1 else (q.unsqueeze(2) * o_HMMBT).sum(1)
        return y_HMBT.reshape(-1, B, T).transpose(0, 1)

    def _shift_kernel(self):
        """Taps of the shift model, (D, N); C shifted by j meets B, and d is added to the first."""
        c_DNN = F.pad(wide(self.shift_out_DN), (0, self.N - 1)).unfold(1, self.N, 1)
        return with_skip((c_DNN * wide(self.shift_in_DN).unsqueeze(1)).sum(2), wide(self.shift_skip_D))

    def _diag_kernel(self, T):
        """T taps of the diagonal model, (H, T); A^(R s + r) = (A^R)^s A^r makes the sum a matrix product."""
        A_HP, in_HP, out_HP = self._modes()
        bits = (T - 1).bit_length()
        low_HPR, A_to_R_HP = powers(A_HP, 1 << (bits + 1) // 2)
        high_HPS, _ = powers(A_to_R_HP, 1 << bits // 2)
        high_HPS = high_HPS * (2 * in_HP * out_HP).unsqueeze(2)
        skip_H = wide(self.diag_skip_H)
        high_HSQ, low_HRQ = (
            torch.view_as_real(z.to(skip_H.dtype.to_complex()).transpose(1, 2)).flatten(2)
            for z in (high_HPS, torch.conj_physical(low_HPR))
        )
        with torch.autocast(skip_H.device.type, enabled=False):
            kernel_HSR = high_HSQ @ low_HRQ.transpose(1, 2)
        return with_skip(kernel_HSR.flatten(1)[:, :T], skip_H)

    def _modes(self):
        """A, B and C of the diagonal model, (H, P) each, complex128."""
        rate_HP, freq_HP = self.log_rate_HP.double().exp(), self.freq_HP.double()
        dt_H1 = self.log_dt_H.double().exp().unsqueeze(1)
        half_HP = dt_H1 / 2 * torch.complex(-rate_HP, freq_HP)
        in_HP, out_HP = (torch.view_as_complex(z.double()) for z in (self.diag_in_HP2, self.diag_out_HP2))
        return (1 + half_HP) / (1 - half_HP), dt_H1 * in_HP / (1 - half_HP), out_HP

    def start(self, batch_size):
        H, P = self.freq_HP.shape
        zeros = wide(self.freq_HP).new_zeros(batch_size, H, self.M, self.M, P, 2)
        return {"past_BDK": self.freq_HP.new_empty(batch_size, H * self.M, 0), "modes_BHMMP2": zeros}

    def step(self, x_BD, state, context):  # noqa: ARG002
        k_BD, past_BDK = conv_step(self.key(x_BD), state["past_BDK"], self._shift_kernel())
        q_BHM, k_BHM, v_BHM = (
            z.unflatten(1, (-1, self.M)) for z in (self.query(x_BD), k_BD, self.value(x_BD))
        )
        kv_BHMM = wide(k_BHM).unsqueeze(3) * wide(v_BHM).unsqueeze(2)
        modes_BHMMP = torch.view_as_complex(state["modes_BHMMP2"])
        A_HP, in_HP, out_HP = (z.to(modes_BHMMP.dtype)[:, None, None] for z in self._modes())
        modes_BHMMP = A_HP * modes_BHMMP + in_HP * kv_BHMM.unsqueeze(4)
        o_BHMM = 2 * (out_HP * modes_BHMMP).real.sum(4) + wide(self.diag_skip_H)[:, None, None] * kv_BHMM
        y_BHM = (q_BHM.unsqueeze(3) * o_BHMM).sum(2)
        state = {"past_BDK": past_BDK, "modes_BHMMP2": torch.view_as_real(modes_BHMMP)}
        return self.out(y_BHM.flatten(1).to(x_BD.dtype)), state

    def state_size(self, T):
        D = self.shift_skip_D.numel()
        return D * min(T, self.N - 1) + D * self.M * self.N

    def flops(self, T):
        H, D = self.diag_skip_H.numel(), self.shift_skip_D.numel()
        convolutions = D * conv_flops(T, self.N) + H * conv_flops(T, T, rows=self.M**2)
        diag_kernel = 2 * H * self.N * (1 << (T - 1).bit_length()) / T
        return linear_flops(self.query, self.key, self.value, self.out) + convolutions + diag_kernel

    def param_rules(self):
        slow = ParamRule(lr_max=1e-3)
        return {
            "log_": slow,
            "freq": slow,
            "shift_in": slow,
            "diag_in": slow,
            "skip": ParamRule(),
            "bias": ParamRule(),
        }


def powers(base_HP, n):
    """base^0 .. base^(n - 1), (H, P, n), and base^n; n a power of two."""
    table, step = torch.ones_like(base_HP).unsqueeze(2), base_HP.unsqueeze(2)
    while table.shape[2] < n:
        table, step = torch.cat([table, table * step], dim=2), step * step
    return table, step.squeeze(2)
