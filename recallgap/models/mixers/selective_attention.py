"""Attention for selected query rows only (Zoology, arXiv 2312.04927, section 5, Eq. 2 and 3).

    y_i = f_i W_o softmax(q_i k^T / sqrt(E), over the past) v      f_i = 0 for the rows that are not selected

    full           f = 1
    random         f_i = 1 with probability `rate`: the paper's control (its rate is not known)
    programmatic   f_i = 1 iff the token i occurred before i in its row: Eq. 3. Nothing looks at token i + 1,
                   which would tell the model that the answer is a copy
    learned        f_i = s_i = sigmoid(x_i W) if row i is selected, W in R^D;
                   max(0, sum over i of s_i - k) / T  is added to the loss in training

The paper keeps the k rows of the highest s in the whole sequence, so that a later token can unselect an
earlier row: its perplexity sees the future. That rule is here as "top_k_sequence", which warns. By default a
row is selected in evaluation where s_i > 1/2 and in training with probability s_i, so that the sum which
the loss holds at k is the number of rows to expect. (The paper adds noise in training and does not tell
which; the authors' synthetic code trains a soft gate on all rows and selects only in evaluation.) As f
multiplies the output, W learns from the language model's loss too. Untested at scale: in small runs of
associative recall the rows that matter lost their scores before attention had learnt anything.

Only selected rows are computed: they are gathered, padded to the largest number in the batch, projected,
compared with all keys and scattered back. Padding of a row is never selected.
Legend: B batch, T position, D width, H heads, G key-value heads, E head width, S selected rows.
"""

import functools
import warnings
from dataclasses import dataclass

import torch
from torch import nn

from recallgap.errors import ConfigError
from recallgap.models.heads import HeadOptions, Heads
from recallgap.models.mixer import ParamRule, wide
from recallgap.models.state_mixers import INIT_STD
from recallgap.registry import pick

SELECTIONS = {"full": "every row", "random": "a share", "programmatic": "repeats", "learned": "by a score"}
RULES = {"threshold": "score above 1/2", "top_k_sequence": "the k highest scores of the whole sequence"}
ROWS_AT_ONCE = 512
"""Selected rows compared with the keys at a time: later keys than a part's last row are left out."""


class SelectiveAttention(nn.Module):
    """Softmax attention of selected query rows over all their past; 0 in the other rows."""

    @dataclass(frozen=True, kw_only=True)
    class Options(HeadOptions):
        selection: str = "programmatic"
        """Which rows: full, random, programmatic or learned."""
        rate: float = 0.125
        """random: probability of a row; 1/8 is the learned selection's 256 of 2048. In training each forward
        draws anew (torch's generator); in evaluation the rows depend on `seed` and the layer alone."""
        seed: int = 0
        """random: of the rows selected in evaluation."""
        k: int = 256
        """learned: rows that the loss allows (or that top_k_sequence takes)."""
        rule: str = "threshold"
        """learned: threshold (causal) or top_k_sequence (the paper's, not causal)."""
        noise: float = 1.0
        """learned: size of the logistic noise that decides in training. 1: row i is selected with probability
        s_i; 0: where s_i > 1/2."""
        loss_weight: float = 1.0
        """learned: of the auxiliary loss (the paper's is not known)."""

        def __post_init__(self):
            pick("selection", SELECTIONS, self.selection)
            pick("rule of learned selection", RULES, self.rule)
            if not 0 < self.rate <= 1:
                raise ConfigError(f"selective_attention: rate is {self.rate}, but it must lie in (0, 1]")
            if self.k < 1:
                raise ConfigError(f"selective_attention: k is {self.k}, but at least 1 row must be allowed")
            for name in ("noise", "loss_weight"):
                if getattr(self, name) < 0:
                    raise ConfigError(f"selective_attention: {name} is {getattr(self, name)}, below 0")

    def __init__(self, d_model, options, place):
        super().__init__()
        self.heads = Heads(d_model, options, place, "selective_attention")
        self.options, self.place = options, place
        if options.selection == "learned":
            if options.k > place.context_len:
                raise ConfigError(
                    f"selective_attention: k is {options.k}, but a context has {place.context_len} rows"
                )
            self.score_D = nn.Parameter(torch.empty(d_model))
            if options.rule == "top_k_sequence":
                warn_not_causal()

    def init_weights(self):
        self.heads.reset_parameters()
        if self.options.selection == "learned":
            nn.init.normal_(self.score_D, std=INIT_STD)

    def forward(self, x_BTD, context):
        k_BGTE, v_BGTE = self.heads.keys(x_BTD), self.heads.values(x_BTD)
        if self.options.selection == "full":
            y_BHTE = self.heads.attend(self.heads.queries(x_BTD), k_BGTE, v_BGTE, is_causal=True)
            return self.heads.join(y_BHTE)
        f_BT = self.select(x_BTD, context)
        rows_BS, f_BS = _gathered(f_BT)
        y_BSD = self._attend(x_BTD, rows_BS, k_BGTE, v_BGTE)
        y_BSD = y_BSD * f_BS.unsqueeze(-1).to(y_BSD.dtype)
        rows_BSD = rows_BS.unsqueeze(-1).expand_as(y_BSD)
        return torch.zeros_like(x_BTD, dtype=y_BSD.dtype).scatter_add(1, rows_BSD, y_BSD)

    def _attend(self, x_BTD, rows_BS, k_BGTE, v_BGTE):
        """Attention of the gathered rows, which ascend, part by part: (B, S, D)."""
        T, S = x_BTD.shape[1], rows_BS.shape[1]
        x_BSD = x_BTD.gather(1, rows_BS.unsqueeze(-1).expand(-1, -1, x_BTD.shape[2]))
        q_BHSE = self.heads.queries(x_BSD, positions_BT=rows_BS)
        t_T = torch.arange(T, device=x_BTD.device)
        n_parts = -(-S // ROWS_AT_ONCE)
        parts = []
        for q_BHPE, rows_BP in zip(q_BHSE.chunk(n_parts, 2), rows_BS.chunk(n_parts, 1), strict=True):
            past = int(rows_BP.max()) + 1 if n_parts > 1 else T
            mask_B1PT = (t_T[:past] <= rows_BP.unsqueeze(-1)).unsqueeze(1)
            parts.append(
                self.heads.attend(q_BHPE, k_BGTE[:, :, :past], v_BGTE[:, :, :past], attn_mask=mask_B1PT)
            )
        return self.heads.join(torch.cat(parts, dim=2))

    def select(self, x_BTD, context):
        """f, (B, T); for learned selection also its loss, left in the context."""
        B, T, _ = x_BTD.shape
        kind, real_BT = self.options.selection, context.real_BT
        if real_BT is None:
            real_BT = torch.ones_like(context.ids_BT, dtype=torch.bool)
        if kind == "learned":
            return self._learned(x_BTD, real_BT, context.auxiliary_losses)
        if kind == "programmatic":
            return (repeats(context.ids_BT) & real_BT).to(x_BTD.dtype)
        if kind == "random":
            drawn = torch.rand(B, T, device=x_BTD.device) if self.training else self._fixed_draw(T).to(x_BTD)
            return ((drawn < self.options.rate) & real_BT).to(x_BTD.dtype)
        return real_BT.to(x_BTD.dtype)

    def _fixed_draw(self, T):
        """Uniform numbers for the positions of every row, the same in each forward."""
        generator = torch.Generator().manual_seed(self.options.seed * self.place.n_layers + self.place.layer)
        return torch.rand(self.place.context_len, generator=generator)[:T]

    def _logits(self, x):
        """x W, in float32 at least, so that autocast cannot move a row over the threshold."""
        return (wide(x) * wide(self.score_D)).sum(-1)

    def _learned(self, x_BTD, real_BT, auxiliary_losses):
        logit_BT = self._logits(x_BTD)
        s_BT = logit_BT.sigmoid() * real_BT
        excess_B = torch.relu(s_BT.sum(1) - self.options.k) / real_BT.sum(1).clamp(min=1)
        auxiliary_losses.append(self.options.loss_weight * excess_B.mean())
        if self.training and self.options.noise:
            uniform_BT = torch.rand_like(logit_BT)
            logit_BT = logit_BT + self.options.noise * torch.logit(uniform_BT, eps=1e-6)
        if self.options.rule == "threshold":
            return s_BT * (logit_BT > 0)
        chances_BT = logit_BT.masked_fill(~real_BT, -torch.inf)
        highest_BK = chances_BT.topk(min(self.options.k, chances_BT.shape[1]), dim=1).indices
        return s_BT * torch.zeros_like(s_BT).scatter(1, highest_BK, 1.0)

    def start(self, batch_size):
        return self.heads.start(batch_size)

    def step(self, x_BD, state, context):
        """As evaluation does. Every row is computed, since a step has one."""
        t = state["keys_BGTE"].shape[2]
        state = self.heads.extended(state, x_BD.unsqueeze(1))
        y_BD = self.heads.attend_last(state, x_BD.unsqueeze(1)).squeeze(1)
        return y_BD * self._select_one(x_BD, t, context.ids_BT).to(y_BD.dtype), state

    def _select_one(self, x_BD, t, ids_BT):
        """f of row t, (B, 1) or (1, 1)."""
        kind = self.options.selection
        if kind == "learned":
            if self.options.rule != "threshold":
                raise ConfigError(
                    "selective_attention: top_k_sequence needs the whole sequence, so it has no step"
                )
            logit_B1 = self._logits(x_BD).unsqueeze(1)
            return logit_B1.sigmoid() * (logit_B1 > 0)
        if kind == "programmatic":
            return (ids_BT[:, :t] == ids_BT[:, t : t + 1]).any(1, keepdim=True)
        if kind == "random":
            return (self._fixed_draw(t + 1)[t:] < self.options.rate).to(x_BD.device).unsqueeze(1)
        return torch.ones(1, 1, device=x_BD.device)

    def state_size(self, T):
        return self.heads.cache_size(T)

    def flops(self, T, selected=None):
        """`selected`: the share of rows. None: 1 for full, `rate` for random, k of T for learned (what its
        loss aims at) and, as it depends on the text, 1 for programmatic: an upper bound."""
        if selected is None:
            kinds = {"random": self.options.rate, "learned": min(1, self.options.k / T)}
            selected = kinds.get(self.options.selection, 1)
        keys_and_values = 2 * (self.heads.key.weight.numel() + self.heads.value.weight.numel())
        a_row = self.heads.flops() - keys_and_values + self.heads.score_flops(T)
        return keys_and_values + round(selected * a_row)

    def param_rules(self):
        return {"score": ParamRule()}


def repeats(ids_BT):
    """True at i where ids[i] occurred before i in its row, (B, T).

    >>> repeats(torch.tensor([[4, 7, 4, 4, 7]]))
    tensor([[False, False,  True,  True,  True]])
    """
    sorted_BT, order_BT = ids_BT.sort(dim=1, stable=True)
    again_BT = torch.zeros_like(ids_BT, dtype=torch.bool)
    again_BT[:, 1:] = sorted_BT[:, 1:] == sorted_BT[:, :-1]
    return torch.zeros_like(again_BT).scatter(1, order_BT, again_BT)


def _gathered(f_BT):
    """Positions of the selected rows, ascending, and their f; what fills up the batch is row 0 with f = 0."""
    selected_BT = f_BT.detach() != 0
    n_B = selected_BT.sum(1)
    S = max(int(n_B.max()), 1)
    rows_BS = (~selected_BT).to(torch.uint8).argsort(dim=1, stable=True)[:, :S]
    real_BS = torch.arange(S, device=f_BT.device) < n_B.unsqueeze(1)
    rows_BS = rows_BS * real_BS
    return rows_BS, f_BT.gather(1, rows_BS) * real_BS


@functools.cache
def warn_not_causal():
    """Once a process."""
    warnings.warn(
        "selective_attention with rule 'top_k_sequence' chooses rows by the scores of the whole sequence, as "
        "the paper does: later tokens change earlier predictions, so its perplexity is not that of a causal "
        "model. The rule 'threshold' is causal.",
        stacklevel=2,
    )
