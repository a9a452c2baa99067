"""transformers' Trainer with our data order, parameter groups, recall evaluation, checkpoints and checks.

The Trainer does the loop, mixed precision, DDP and FSDP, gradient accumulation and the state that a resumed
run needs. It sees one epoch, whose sampler yields the contexts of the whole run.
"""

import contextlib
import math
import os
import shutil
import time
import warnings
import zipfile
from pathlib import Path

import torch
from safetensors import safe_open
from torch.optim.lr_scheduler import LambdaLR
from transformers import PrinterCallback, Trainer, TrainerCallback
from transformers.trainer_utils import get_last_checkpoint
from transformers.utils import logging

from recallgap.errors import ArtifactError, TrainingError
from recallgap.evaluate.checkpoint import quiet_transformers
from recallgap.evaluate.heads import OwnLogits, Tail, TiledHead
from recallgap.evaluate.losses import evaluation_mode
from recallgap.models.groups import parameter_groups
from recallgap.pretrain.order import Positions, as_batch, documents_of
from recallgap.pretrain.schedule import learning_rate_share
from recallgap.progress import note
from recallgap.staging import FULL, sync

KEPT_CHECKPOINTS = 2
LEAST_FREE = 1 << 20
"""Bytes; with less, a failed write is taken to have failed for want of space."""
NAMED_DOCUMENTS = 20


class Pretrainer(Trainer):
    """One run. watch: its `RecallWatch` (None: no evaluation); seen: `SeenCounts` or None; notes: the `Notes`
    of the first process, None in others."""

    def __init__(
        self, model, dataset, order, steps, options, arguments, *, watch=None, seen=None, notes=None
    ):
        self.steps, self.config, self.order, self.options = steps, steps.config, order, options
        self.watch, self.seen, self.notes = watch, seen, notes
        self.folder = Path(arguments.output_dir)
        super().__init__(model=model, args=arguments, train_dataset=dataset, data_collator=as_batch)
        self.remove_callback(PrinterCallback)
        self.add_callback(_Timetable(steps, options, evaluates=watch is not None))

    def _get_train_sampler(self, train_dataset=None):  # noqa: ARG002
        return Positions(self.order, self.steps.n_steps * self.config.batch_size)

    def create_optimizer(self, model=None):
        if self.optimizer is None:
            self.optimizer = torch.optim.AdamW(
                parameter_groups(
                    self.model if model is None else model,
                    self.config.learning_rate,
                    self.config.weight_decay,
                ),
                betas=(self.config.beta1, self.config.beta2),
                eps=self.config.epsilon,
                fused=not self.options.fsdp,
            )
        return self.optimizer

    def create_scheduler(self, num_training_steps, optimizer=None):
        if self.lr_scheduler is None:
            self.lr_scheduler = LambdaLR(
                optimizer or self.optimizer,
                lambda step: learning_rate_share(step, num_training_steps, self.config),
            )
            self._created_lr_scheduler = True
        return self.lr_scheduler

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        """The loss alone: accelerate would make float32 of logits that nobody reads."""
        return super().compute_loss(
            model, {**inputs, "return_logits": False}, return_outputs, num_items_in_batch
        )

    def training_step(self, model, inputs, num_items_in_batch=None):
        loss = super().training_step(model, inputs, num_items_in_batch)
        if not torch.isfinite(loss):
            raise TrainingError(self._not_finite(float(loss)))
        return loss

    def _not_finite(self, loss):
        step, size, corpus = self.state.global_step, self.config.batch_size, self.train_dataset.corpus
        contexts = self.order.contexts(step * size, (step + 1) * size)
        documents = documents_of(corpus, contexts, self.config.context_len)
        more = f" and {len(documents) - NAMED_DOCUMENTS} more" if len(documents) > NAMED_DOCUMENTS else ""
        kept = get_last_checkpoint(str(self.folder))
        named = ", ".join(map(str, documents[:NAMED_DOCUMENTS])) + more
        return (
            f"pretraining, step {step + 1} of {self.steps.n_steps}: the loss is {loss}. Its batch holds "
            f"documents {named} of {corpus.path}. The last good "
            f"checkpoint is {kept or 'none yet'}; the same command would come to this step again: choose "
            "another output with a lower learning rate, more warm-up, or precision=fp32"
        )

    @torch.no_grad()
    def evaluate(self, *_, **__):
        """Sum the losses by slice over all processes and log them; returns what was logged."""
        started, share = time.monotonic(), (self.args.process_index, self.args.world_size)
        model = self.model_wrapped if self.options.fsdp else self.model
        with evaluation_mode(model):
            loss_CT = self.watch.losses(model, self._head(), self.options.device_batch_size, *share)
        position = self.state.global_step * self.config.batch_size
        seen_CT = None if self.seen is None else self.seen.advance_to(position)
        sums = self._over_processes(self.watch.sums(loss_CT, seen_CT, *share))
        if not all(math.isfinite(s["loss_sum"]) for s in sums.values()):
            raise TrainingError(self._diverged())
        if self.notes is not None:
            self.notes.evaluation(self.state.global_step, sums, time.monotonic() - started)
        metrics = {f"eval_{name}": s["loss_sum"] / s["n"] for name, s in sums.items() if s["n"]}
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def _diverged(self):
        step, kept = self.state.global_step, get_last_checkpoint(str(self.folder)) or "none yet"
        return (
            f"pretraining, evaluation after step {step} of {self.steps.n_steps}: the loss is not finite. The "
            f"last checkpoint is {kept}; the same command would come here again: choose another output with "
            "a lower learning rate or more warm-up"
        )

    def _head(self):
        if self.options.fsdp:  # the head's weight lies in shards
            return OwnLogits(self.model.config.vocab_size)
        return TiledHead(self.model.head.weight, None, Tail(1.0, None))

    def _over_processes(self, sums):
        if self.args.world_size == 1:
            return sums
        values = torch.tensor([[s["n"], s["loss_sum"]] for s in sums.values()], dtype=torch.float64)
        values = values.to(self.args.device)
        torch.distributed.all_reduce(values)
        rows = zip(sums, values.tolist(), strict=True)
        return {name: {"n": int(n), "loss_sum": loss_sum} for name, (n, loss_sum) in rows}

    def log(self, logs, start_time=None):
        if "loss" in logs and self.notes is not None:
            share = learning_rate_share(self.state.global_step - 1, self.steps.n_steps, self.config)
            learning_rate = share * self.config.learning_rate
            self.notes.train(self.state.global_step, logs["loss"], logs["grad_norm"], learning_rate)
        super().log(logs, start_time)

    def _get_output_dir(self, trial):  # noqa: ARG002
        return str(self.folder / "half")

    def _save_checkpoint(self, model, trial):
        """Write a checkpoint whole or not at all, then drop those before the last KEPT_CHECKPOINTS."""
        half, name = Path(self._get_output_dir(trial)), f"checkpoint-{self.state.global_step}"
        main = self.args.process_index == 0
        if main:
            shutil.rmtree(half, ignore_errors=True)
        self._barrier()
        if main:
            self.notes.keep(self.state.global_step)
        try:
            super()._save_checkpoint(model, trial)
        except Exception as error:  # torch, safetensors and the system each have their own for a full disk
            full = _is_full(error, self.folder)  # before the half of it is removed
            shutil.rmtree(half, ignore_errors=True)
            if not full:
                raise
            raise ArtifactError(self._disk_full(name, error)) from error
        self._barrier()
        if main:
            for path in (half / name).rglob("*"):
                sync(path)
            shutil.rmtree(self.folder / name, ignore_errors=True)  # a damaged one that was passed over
            os.rename(half / name, self.folder / name)
            sync(self.folder)
            for old in sorted(self.folder.glob("checkpoint-*"), key=_step_of)[:-KEPT_CHECKPOINTS]:
                shutil.rmtree(old)
        self._barrier()

    def _disk_full(self, name, error):
        kept = get_last_checkpoint(str(self.folder))
        return (
            f"pretraining: {name} could not be written, the disk is full ({error}). Whole ones are kept, the "
            f"last of them is {kept or 'none yet'}: free some space and run the same command again"
        )

    def _barrier(self):
        if self.args.world_size > 1:
            torch.distributed.barrier()


class _Timetable(TrainerCallback):
    """When a run logs, evaluates and saves."""

    def __init__(self, steps, options, *, evaluates):
        self.steps, self.options, self.saved, self.evaluates = steps, options, time.monotonic(), evaluates

    def on_step_end(self, args, state, control, **kwargs):  # noqa: ARG002
        step = state.global_step
        control.should_log = self.steps.logs(step)
        control.should_evaluate = self.evaluates and self.steps.evaluates(step)
        due = time.monotonic() - self.saved >= 60 * self.options.save_minutes
        control.should_save = control.should_log and self._agreed(due, args) and step < self.steps.n_steps
        if control.should_save:
            self.saved = time.monotonic()

    @staticmethod
    def _agreed(due, args):
        """What the first process says: clocks differ."""
        if args.world_size == 1:
            return due
        flag = torch.tensor([float(due)], device=args.device)
        torch.distributed.broadcast(flag, 0)
        return bool(flag.item())


@contextlib.contextmanager
def quiet_training():
    """Keep off the screen what says nothing new: transformers' advice and its bars for each file written, and
    torch's word that a norm of bfloat16 queries with float32 weights takes the plain way."""
    logging.disable_progress_bar()
    try:
        with quiet_transformers(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Mismatch dtype between input and weight")
            yield
    finally:
        logging.enable_progress_bar()


def last_readable(folder):
    """The last checkpoint in a folder whose files can be read, as a string; None where there is none."""
    for path in sorted(folder.glob("checkpoint-*"), key=_step_of, reverse=True):
        try:
            for weights in path.glob("*.safetensors"):
                with safe_open(weights, "pt") as file:
                    file.keys()
            if all(zipfile.is_zipfile(state) for state in path.glob("*.pt*")):
                return str(path)
        except Exception as error:  # safetensors has its own class
            note(f"{path} is damaged: {error}")
        note(f"{path} cannot be read; going back to the one before")
    return None


def _is_full(error, folder):
    """Whether writing failed for want of space; torch's error for it does not say so."""
    known = getattr(error, "errno", None) in FULL or "space left" in str(error)
    return known or shutil.disk_usage(folder).free < LEAST_FREE


def _step_of(path):
    return int(path.name.rpartition("-")[2])
