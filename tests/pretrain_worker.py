"""One process of a distributed pretraining, for torchrun: python -m tests.pretrain_worker FOLDER ddp|fsdp."""

import sys
from pathlib import Path

from recallgap.pretrain import RunOptions
from tests.pretrain_cases import T, model_config, run


def distributed_run(folder, out, options):
    """Without random numbers, which processes draw apart, and with an epsilon that keeps Adam from making
    large steps of float noise in tiny gradients; an odd number of contexts is evaluated."""
    model = model_config(dropout=0.0)
    return run(folder, out, model=model, options=options, seen_counts=True, epsilon=1e-3, eval_tokens=7 * T)


if __name__ == "__main__":
    folder, kind = Path(sys.argv[1]), sys.argv[2]
    options = RunOptions(device="cpu", device_batch_size=2, fsdp=kind == "fsdp", save_minutes=0)
    distributed_run(folder, kind, options)
