"""From token ids to losses without ever holding the logits of a batch.

Nearly every causal language model ends in a linear layer, at times followed by a fixed elementwise function
(a scale, a soft cap). `TiledHead` runs the model up to that layer and does the rest itself, in float32, tile
by tile of tokens x vocabulary, each tile small enough for the cache. `choose_head` decides by trying: it
takes `TiledHead` only where its losses equal those of the model's own logits, else `OwnLogits`.

Legend: B rows, T positions, N scored positions of a batch, D hidden size, V vocabulary.
"""

import contextlib
import math
from dataclasses import dataclass
from typing import ClassVar

import torch

from recallgap.errors import CheckpointError

TILES = {"cpu": (1024, 1024), "cuda": (8192, 8192)}
"""Tokens and vocabulary rows per tile; cpu: measured (benchmarks/evaluate.py --tiles), cuda: not measured."""
EXACT_MATMUL = {torch.bfloat16: ("bf16", "tf32"), torch.float16: ("ieee", "tf32")}
"""How the two backends, oneDNN and CUDA, may shorten float32 factors that were numbers of this dtype before:
bf16 keeps 8 bits of them and tf32 keeps 11, so nothing is lost, and products are summed in float32 as ever.
Up to twice as fast as full float32 on a CPU with bf16 units (benchmarks/evaluate.py --tiles)."""
LOGIT_ROWS = 256
"""Rows of a model's own logits that are made float32 at once."""
PROBE_LEN = 8
LOGIT_TOLERANCE = 1e-4
"""How far two ways to the same logits or losses may differ, relative to the largest; float noise is ~1e-6."""
HUGE_LOGIT = 1e6
TAIL_PROBES = (1.0, -1.0, 0.25, -4.0, 16.0, -30.0, 100.0, -1e3, HUGE_LOGIT)


@dataclass(frozen=True)
class Tail:
    """What a model does with its last linear layer's output z: scale * z, or cap * tanh(scale * z / cap)."""

    scale: float
    cap: float | None

    def __call__(self, z):
        """Applied in place."""
        if self.cap is None:
            return z if self.scale == 1 else z.mul_(self.scale)
        return z.mul_(self.scale / self.cap).tanh_().mul_(self.cap)


@dataclass(frozen=True)
class TiledHead:
    """The model up to its last linear layer; then layer, tail and log-sum-exp by tiles, in float32."""

    weight_VD: torch.Tensor
    bias_V: torch.Tensor | None
    tail: Tail
    name: ClassVar[str] = "tiled"

    @property
    def vocab_size(self):
        return self.weight_VD.shape[0]

    def losses(self, model, ids_BT, targets_BT, scored_BT):
        """Loss in nats, float32 (N,), of `targets_BT` where `scored_BT`; rows are padded on the right."""
        return self.losses_of(_last_linear_input(model, ids_BT)[scored_BT], targets_BT[scored_BT])

    def losses_of(self, hidden_ND, targets_N):
        """Loss in nats, float32 (N,), of each target given the input of the last linear layer."""
        tokens, _ = TILES[self.weight_VD.device.type]
        parts = zip(hidden_ND.split(tokens), targets_N.split(tokens), strict=True)
        factors = hidden_ND.dtype if hidden_ND.dtype == self.weight_VD.dtype else torch.float32
        with matmul_precision(*EXACT_MATMUL.get(factors, ("ieee", "ieee"))):
            return torch.cat([self._tile_losses(hidden.float(), targets) for hidden, targets in parts])

    def _tile_losses(self, hidden_ND, targets_N):
        # The target's logit is read out of the tile itself: computed apart, it could exceed the log-sum-exp.
        _, rows = TILES[self.weight_VD.device.type]
        target_N, log_sums = torch.zeros_like(hidden_ND[:, 0]), []
        for first in range(0, self.vocab_size, rows):
            logits_NR = hidden_ND @ self.weight_VD[first : first + rows].float().T
            if self.bias_V is not None:
                logits_NR += self.bias_V[first : first + rows].float()
            logits_NR = self.tail(logits_NR)
            row_N = targets_N - first
            here_N = (row_N >= 0) & (row_N < logits_NR.shape[1])
            found_N = logits_NR.gather(1, row_N.clamp(0, logits_NR.shape[1] - 1)[:, None])[:, 0]
            target_N = torch.where(here_N, found_N, target_N)
            peak_N1 = logits_NR.amax(1, keepdim=True)
            log_sums.append(logits_NR.sub_(peak_N1).exp_().sum(1).log_().add_(peak_N1[:, 0]))
        return torch.logsumexp(torch.stack(log_sums), 0) - target_N


@dataclass(frozen=True)
class OwnLogits:
    """The model's own logits, one row of a batch at a time; softmax in float32."""

    vocab_size: int
    name: ClassVar[str] = "full"

    def losses(self, model, ids_BT, targets_BT, scored_BT):
        """Loss in nats, float32 (N,), of `targets_BT` where `scored_BT`; rows are padded on the right."""
        parts = []
        for ids_T, targets_T, scored_T in zip(ids_BT, targets_BT, scored_BT, strict=True):
            n_scored = int(scored_T.sum())
            logits_TV = _forward(model, ids_T[None, :n_scored]).logits[0]
            rows = zip(logits_TV.split(LOGIT_ROWS), targets_T[:n_scored].split(LOGIT_ROWS), strict=True)
            parts += [_cross_entropy(logits.float(), targets) for logits, targets in rows]
        return torch.cat(parts)


@torch.no_grad()
def choose_head(model):
    """The head that gives `model`'s losses; CheckpointError where the model is not a causal language model.

    Two short rows that begin alike are tried: predictions within the common part may not depend on the rest.
    """
    ids_2T = _probe_ids(model)
    logits_2TV = _forward(model, ids_2T).logits.float()
    own = OwnLogits(logits_2TV.shape[-1])
    if not torch.isfinite(logits_2TV).all():
        return own
    tolerance = max(LOGIT_TOLERANCE, 4 * torch.finfo(model.dtype).eps)
    common_2TV = logits_2TV[:, : PROBE_LEN // 2]
    if not _close(common_2TV[0], common_2TV[1], tolerance):
        raise CheckpointError(
            f"evaluating a {type(model).__name__}: its predictions change with the tokens that follow, or "
            "from row to row, so their losses mean nothing; a causal language model is needed, not an encoder"
        )
    linear = model.get_output_embeddings()
    if not isinstance(linear, torch.nn.Linear) or linear.out_features != own.vocab_size:
        return own
    tail = _measured_tail(model, linear, ids_2T)
    if tail is None:
        return own
    tiled = TiledHead(linear.weight, linear.bias, tail)
    everywhere = torch.ones_like(ids_2T, dtype=torch.bool)
    losses_N = tiled.losses(model, ids_2T, ids_2T, everywhere)
    own_N = _cross_entropy(logits_2TV.flatten(0, 1), ids_2T.flatten())
    return tiled if _close(losses_N, own_N, tolerance) else own


def _probe_ids(model):
    vocab_size = model.get_input_embeddings().weight.shape[0]
    ids_2T = (torch.arange(PROBE_LEN, device=model.device) * 7919 + 13).expand(2, -1).clone()
    ids_2T[1, PROBE_LEN // 2 :] += 1
    return ids_2T % vocab_size


def _measured_tail(model, linear, ids_2T):
    """The `Tail`, found by putting known values in place of the linear layer's output; None if no such."""
    values_P = torch.tensor(TAIL_PROBES, device=ids_2T.device)
    size = (1, len(TAIL_PROBES), linear.out_features)

    def put(_module, _args, output):
        return values_P[None, :, None].expand(size).to(output.device)

    handle = linear.register_forward_hook(put)
    try:
        seen_PV = _forward(model, ids_2T[:1]).logits[0].float()
    finally:
        handle.remove()
    if seen_PV.shape != size[1:] or not torch.equal(seen_PV.amin(1), seen_PV.amax(1)):
        return None
    at_one, at_huge = float(seen_PV[0, 0]), float(seen_PV[-1, 0])
    if math.isclose(at_huge, at_one * HUGE_LOGIT, rel_tol=LOGIT_TOLERANCE):
        tail = Tail(at_one, None)
    elif 0 < abs(at_one) < at_huge:
        tail = Tail(at_huge * math.atanh(at_one / at_huge), at_huge)
    else:
        return None
    fits = torch.allclose(tail(values_P.clone()), seen_PV[:, 0], rtol=LOGIT_TOLERANCE, atol=LOGIT_TOLERANCE)
    return tail if fits else None


def _last_linear_input(model, ids_BT):
    """What the model's last linear layer is applied to, (B, T, D); the layer itself runs on one position."""
    caught = []

    def catch(_module, args):
        caught.append(args[0])
        return (args[0][:, :1],)

    handle = model.get_output_embeddings().register_forward_pre_hook(catch)
    try:
        _forward(model, ids_BT)
    finally:
        handle.remove()
    return caught[0]


def _forward(model, ids_BT):
    # No mask: rows are padded on the right and the model is causal, so pads come after all that counts.
    with matmul_precision("ieee", "ieee"):
        return model(input_ids=ids_BT, use_cache=False)


@contextlib.contextmanager
def matmul_precision(on_cpu, on_cuda):
    """Whatever the process has set, multiply float32 matrices in this way; see EXACT_MATMUL."""
    if not hasattr(torch.backends, "fp32_precision"):  # torch < 2.9; float32 is full there unless changed
        yield
        return
    backends = (torch.backends.mkldnn.matmul, torch.backends.cuda.matmul)
    before = [backend.fp32_precision for backend in backends]
    backends[0].fp32_precision, backends[1].fp32_precision = on_cpu, on_cuda
    try:
        yield
    finally:
        for backend, precision in zip(backends, before, strict=True):
            backend.fp32_precision = precision


def _cross_entropy(logits_NV, targets_N):
    return torch.nn.functional.cross_entropy(logits_NV, targets_N, reduction="none")


def _close(a, b, tolerance):
    """Equal within `tolerance` of the largest of `b`, or of 1 where that is smaller."""
    return bool(((a - b).abs() <= tolerance * max(1.0, float(b.abs().max()))).all())
