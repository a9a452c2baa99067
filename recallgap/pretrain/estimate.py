"""What a run would take, from a few steps of it: `pretrain --dry-run`."""

import resource
import tempfile
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from recallgap.pretrain.config import RunOptions
from recallgap.pretrain.order import DataOrder, PackedContexts, documents_of

MEASURED_STEPS = 4
SHOWN_BATCHES = 3
ADAMW_BYTES = 16
"""A parameter's weight, gradient and two moments in float32."""


def estimate(model_config, corpus, eval_corpus, *, config, options=None):
    """Parameters, tokens, steps, memory, seconds and the first batches of a run, as JSON values.

    Takes a few real steps of the model on the corpus. The first of them, which may compile, does not count,
    and the fastest of the rest does. Seconds leave out evaluation and checkpoints.
    """
    from recallgap.models.describe import describe_model
    from recallgap.pretrain.checks import check_corpora, shared_documents
    from recallgap.pretrain.record import measured_matmul, precision_dtype
    from recallgap.pretrain.steps import Steps

    options = options or RunOptions()
    check_corpora(model_config, corpus, eval_corpus, config)
    dataset = PackedContexts(corpus, config.context_len)
    steps, order = Steps(config, len(dataset)), DataOrder(len(dataset), config.data_seed)
    seconds, device, peak_bytes = _measured(model_config, dataset, order, config, options)
    described, speed = describe_model(model_config), config.step_tokens / seconds
    n_parameters = described["parameters"]["total"]
    matmul_rate = measured_matmul(device, precision_dtype(config.precision))
    return {
        "n_parameters": n_parameters,
        "tokens": steps.tokens,
        "steps": steps.n_steps,
        "step_tokens": config.step_tokens,
        "epochs": steps.epochs,
        "corpus_tokens": corpus.n_tokens,
        "shared_documents": shared_documents(corpus, eval_corpus)[0],
        "seconds_per_step": seconds,
        "tokens_per_second": speed,
        "seconds": seconds * steps.n_steps,
        "model_flop_utilisation": 3 * described["flops_per_token"] * speed / matmul_rate,
        "optimizer_bytes": ADAMW_BYTES * n_parameters,
        "peak_bytes": peak_bytes,
        "first_batches": [
            _batch(dataset, order, config, step) for step in range(min(SHOWN_BATCHES, steps.n_steps))
        ],
    }


def _batch(dataset, order, config, step):
    contexts = order.contexts(step * config.batch_size, (step + 1) * config.batch_size)
    documents = documents_of(dataset.corpus, contexts, config.context_len)
    return {"contexts": contexts.tolist(), "documents": documents}


def _measured(model_config, dataset, order, config, options):
    """(seconds of a step, device, peak bytes of the process or of the GPU) of a few steps of training."""
    import torch
    from transformers import TrainerCallback, set_seed

    from recallgap.models import RecallGapForCausalLM
    from recallgap.pretrain.steps import Steps, training_arguments
    from recallgap.pretrain.trainer import Pretrainer, quiet_training

    ends = []

    class Clock(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):  # noqa: ARG002
            if args.device.type == "cuda":
                torch.cuda.synchronize()
            ends.append(time.perf_counter())

    few = Steps(replace(config, tokens=MEASURED_STEPS * config.step_tokens), len(dataset))
    with tempfile.TemporaryDirectory() as folder, quiet_training():
        arguments = training_arguments(few, options, Path(folder), folder)
        set_seed(config.seed)
        trainer = Pretrainer(RecallGapForCausalLM(model_config), dataset, order, few, options, arguments)
        trainer.add_callback(Clock())
        trainer.train()
    if arguments.device.type == "cuda":
        peak_bytes = torch.cuda.max_memory_allocated(arguments.device)
    else:
        peak_bytes = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return min(after - before for before, after in pairwise(ends)), arguments.device, peak_bytes
