"""How a run went: speed, device, versions of the source. Kept in run.json, which no fingerprint covers."""

import platform
import subprocess
import time
from pathlib import Path

import torch

from recallgap.models.backends import in_use

MATMUL_SIZE, MATMUL_ROUNDS = 2048, 8


def run_record(sittings, steps, options, arguments, model, flops_per_token):
    """What run.json says besides versions: sittings, speed, model FLOP utilisation, device, kernels, git."""
    device = arguments.device
    rate = measured_matmul(device, precision_dtype(steps.config.precision))
    seconds = sum(s["seconds"] for s in sittings)
    training = seconds - sum(s["evaluation_seconds"] for s in sittings)
    speed = steps.tokens / max(training, 1e-9)
    training_flops = 3 * flops_per_token
    return {
        "sittings": sittings,
        "tokens_seen": steps.tokens,
        "wall_seconds": round(seconds, 3),
        "tokens_per_second": round(speed, 1),
        "training_flops_per_token": training_flops,
        "measured_matmul_flops": round(rate),
        "model_flop_utilisation": round(speed * training_flops / (rate * arguments.world_size), 4),
        "device": _device_name(device),
        "processes": arguments.world_size,
        "threads": torch.get_num_threads(),
        "kernels": in_use(model, precision_dtype(steps.config.precision)),
        "options": {**options.__dict__, "loggers": list(options.loggers)},
        "git": git_state(),
    }


def precision_dtype(precision):
    """The dtype of matrix products under one of PRECISIONS."""
    return torch.bfloat16 if precision == "bf16" else torch.float32


def measured_matmul(device, dtype):
    """Operations a second of a square matrix product on this device: the best of a few."""
    a, b = (torch.randn(MATMUL_SIZE, MATMUL_SIZE, device=device).to(dtype) for _ in range(2))
    best = float("inf")
    for _ in range(MATMUL_ROUNDS):
        _wait(device)
        started = time.perf_counter()
        a @ b
        _wait(device)
        best = min(best, time.perf_counter() - started)
    return 2 * MATMUL_SIZE**3 / best


def _wait(device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _device_name(device):
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"cpu ({platform.machine()})"


def git_state():
    """{"commit", "changed"} of the source that ran, or None where it is not in a git repository."""
    folder = Path(__file__).parent

    def git(*arguments):
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        changed = bool(git("status", "--porcelain", "--", str(folder.parent)))
        return {"commit": git("rev-parse", "HEAD"), "changed": changed}
    except (OSError, subprocess.CalledProcessError):
        return None
