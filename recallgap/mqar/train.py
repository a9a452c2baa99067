"""One model trained on one MQAR task.

The accuracy is that of the most likely token at the queries of held-out sequences. A run depends on its seed
alone (on one thread of a CPU): the seed decides weights and dropout, the training sequences and their order;
the held-out sequences are those of the same seed and task for every model, width and learning rate.
Legend: B batch, T position, N queries of a batch, V vocabulary.
"""

import contextlib
import itertools
import math

import numpy as np
import torch
from torch.nn import functional as F

from recallgap.models.groups import parameter_groups
from recallgap.mqar.config import IGNORED
from recallgap.mqar.generate import generate
from recallgap.mqar.models import model_config

TRAIN_STREAM, TEST_STREAM = 0, 1
EVAL_TOKENS = 1 << 15
"""Tokens in a forward of the evaluation."""


def train(point, training, device="cpu"):
    """Train the model of a `Point`; returns its result, JSON values that depend on nothing but the arguments.

    A loss that is not finite ends the training: `diverged` is then true and `accuracy` None.
    """
    from recallgap.models.lm import RecallGapForCausalLM

    with torch.random.fork_rng(), _no_denormals():
        torch.manual_seed(point.seed)
        model = RecallGapForCausalLM(model_config(point, training)).to(device)
        for block in model.blocks:
            block.dropout.p = 0.0  # the dropout is the embedding's alone
        curve, n_steps, loss = _fit(model, point, training, device)
    diverged = not math.isfinite(loss)
    return {
        "accuracy": None if diverged else curve[-1],
        "diverged": diverged,
        "loss": None if diverged else loss,
        "epochs": len(curve),
        "steps": n_steps,
        "parameters": sum(p.numel() for p in model.parameters()),
        "curve": curve,
    }


@contextlib.contextmanager
def _no_denormals():
    """Numbers below 1e-38 are 0, as on a GPU: where a softmax is sure, gradients die away through them, and a
    CPU takes so long for each that a training takes twice the time (docs/lab-notes.md)."""
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def _fit(model, point, training, device):
    """Accuracy after each epoch, steps taken, mean training loss of the last epoch."""
    optimizer = torch.optim.AdamW(_groups(model, point, training), fused=True)
    highest = [group["lr"] for group in optimizer.param_groups]
    per_epoch = math.ceil(training.epoch_sequences / point.batch_size)
    held_out = _on(device, generate(point.task, training.eval_sequences, _stream(point, TEST_STREAM)))
    curve, n_steps, mean_loss = [], 0, math.inf
    for batches in itertools.islice(_epochs(point, training, device), training.epochs):
        model.train()
        losses = []
        for ids_BT, targets_BT in batches:
            share = learning_rate_share(n_steps, per_epoch, training)
            for group, learning_rate in zip(optimizer.param_groups, highest, strict=True):
                group["lr"] = learning_rate * share
            labelled_BT = targets_BT != IGNORED
            logits_NV = labelled_logits(model, ids_BT, labelled_BT)
            loss = F.cross_entropy(logits_NV, targets_BT[labelled_BT].long())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
            n_steps += 1
        mean_loss = float(torch.stack(losses).double().mean())
        if not math.isfinite(mean_loss):
            break
        curve.append(accuracy(model, *held_out))
        if curve[-1] > training.stop_at:
            break
    return curve, n_steps, mean_loss


def _groups(model, point, training):
    """What AdamW treats alike, with the highest learning rate of each."""
    if training.own_rules:
        return parameter_groups(model, point.learning_rate, training.weight_decay)
    params = list(model.parameters())
    return [{"params": params, "lr": point.learning_rate, "weight_decay": training.weight_decay}]


def learning_rate_share(step, per_epoch, training):
    """The share of the highest learning rate at optimizer step number `step`, from 0."""
    n_steps = training.epochs * per_epoch
    if training.rate_changes == "epoch":
        step -= step % per_epoch
    n_warmup = math.ceil(training.warmup * n_steps)
    if step < n_warmup:
        return (step + 1) / n_warmup
    return 0.5 * (1 + math.cos(math.pi * (step - n_warmup) / (n_steps - n_warmup)))


def _epochs(point, training, device):
    """For each epoch its batches, (ids_BT, targets_BT); the last one of an epoch may be smaller."""
    rng, n = _stream(point, TRAIN_STREAM), training.epoch_sequences
    sizes = [min(point.batch_size, n - first) for first in range(0, n, point.batch_size)]
    if training.fresh:
        while True:
            yield (_on(device, generate(point.task, size, rng)) for size in sizes)
    ids_BT, targets_BT = _on("cpu", (z.astype(np.int32) for z in generate(point.task, n, rng)))
    while True:
        order = torch.from_numpy(rng.permutation(n))
        yield ((ids_BT[rows].to(device), targets_BT[rows].to(device)) for rows in order.split(sizes))


def _on(device, arrays):
    return tuple(torch.from_numpy(array).to(device) for array in arrays)


def _stream(point, number):
    return np.random.default_rng([point.seed, number])


def labelled_logits(model, ids_BT, labelled_BT):
    """Logits (N, V) of the labelled positions alone: the head on all would cost more than a small model."""
    hook = model.head.register_forward_pre_hook(lambda _, inputs: (inputs[0][labelled_BT],))
    try:
        return model(ids_BT).logits
    finally:
        hook.remove()


@torch.no_grad()
def accuracy(model, ids_BT, targets_BT):
    """Share of the labelled positions whose most likely token is their target."""
    model.eval()
    n_right = n_labelled = 0
    rows = max(1, EVAL_TOKENS // ids_BT.shape[1])
    for ids, targets in zip(ids_BT.split(rows), targets_BT.split(rows), strict=True):
        labelled = targets != IGNORED
        right = labelled_logits(model, ids, labelled).argmax(-1) == targets[labelled]
        n_right, n_labelled = n_right + int(right.sum()), n_labelled + len(right)
    return n_right / n_labelled
