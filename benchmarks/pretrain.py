"""A training step through `recallgap pretrain`'s Trainer, against a plain loop and nanoGPT, on one CPU core.

    python benchmarks/pretrain.py [--nanogpt FOLDER] [--growth] [--compile]

Peers: a bare loop with the very same model, optimizer, clipping and autocast; nanoGPT's model of the same
width, depth, vocabulary and contexts in the same loop, where a checkout of github karpathy/nanoGPT is given.
Each case is a process of its own and takes STEPS steps in ROUNDS rounds, the cases in turn; the best round
counts. tokens/s: per second of CPU time; ratio: the case's tokens/s to the plain loop's; utilisation: three
forwards' operations to the machine's measured matrix product; MiB: the process' peak.
growth: the same of our step for T from 256 to 2048 at 4096 tokens a step, and for batches of 2 to 32.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": "4294967296", "MALLOC_TRIM_THRESHOLD_": "68719476736"}
STEPS, WARM_UP, ROUNDS = 8, 3, 3
RECIPES = ("attention-3m", "base-conv-3m")
LENGTHS, BATCHES = (256, 512, 1024, 2048), (2, 4, 8, 16, 32)


def step_seconds(take_step):
    """CPU seconds of the fastest of STEPS steps after WARM_UP."""
    best = float("inf")
    for step in range(WARM_UP + STEPS):
        started = time.process_time()
        take_step()
        if step >= WARM_UP:
            best = min(best, time.process_time() - started)
    return best


def ours(recipe, batch_size, context_len, compiled):
    """The Trainer's steps; each ends when the next callback is called."""
    import numpy as np
    from transformers import TrainerCallback

    from recallgap.corpus import write_corpus
    from recallgap.models import RecallGapForCausalLM
    from recallgap.pretrain import RunOptions, resolved
    from recallgap.pretrain.order import DataOrder, PackedContexts
    from recallgap.pretrain.steps import Steps, training_arguments
    from recallgap.pretrain.trainer import Pretrainer, quiet_training

    ends = []

    class Clock(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):  # noqa: ARG002
            ends.append(time.process_time())

    n_steps = WARM_UP + STEPS + 1
    settings = [f"context_len={context_len}", f"batch_size={batch_size}"]
    model_config, config = resolved(recipe, [*settings, f"tokens={n_steps * batch_size * context_len}"])
    with tempfile.TemporaryDirectory() as folder, quiet_training():
        ids = np.random.default_rng(0).integers(0, 4096, 200_000)
        dataset = PackedContexts(write_corpus(Path(folder) / "corpus", [ids], vocab_size=4096), context_len)
        options = RunOptions(device="cpu", device_batch_size=batch_size, compile=compiled)
        steps = Steps(config, len(dataset))
        arguments = training_arguments(steps, options, Path(folder), Path(folder) / "scratch")
        order = DataOrder(len(dataset), 0)
        trainer = Pretrainer(RecallGapForCausalLM(model_config), dataset, order, steps, options, arguments)
        trainer.add_callback(Clock())
        trainer.train()
    return min(after - before for before, after in zip(ends[WARM_UP:], ends[WARM_UP + 1 :], strict=False))


def plain(model, loss_of, batch_size, context_len):
    """A bare loop: autocast, backward, clipping, fused AdamW."""
    import torch

    optimizer = torch.optim.AdamW(
        model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True
    )
    ids = torch.randint(0, 4096, (batch_size, context_len))

    def take_step():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = loss_of(ids)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step_seconds(take_step)


def measure(kind, recipe, batch_size, context_len, compiled):
    """Print tokens per CPU second and MiB of one case as JSON."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    if kind == "ours":
        seconds = ours(recipe, batch_size, context_len, compiled)
    elif kind == "plain":
        from recallgap.models import RecallGapForCausalLM
        from recallgap.models.recipes import RECIPES as SHAPES

        model = RecallGapForCausalLM(SHAPES[recipe](context_len=context_len))
        run = torch.compile(model) if compiled else model
        seconds = plain(model, lambda ids: run(input_ids=ids, labels=ids).loss, batch_size, context_len)
    else:
        from model import GPT, GPTConfig  # nanoGPT's

        shape = {"n_layer": 4, "n_head": 3, "n_embd": 192, "vocab_size": 4096, "bias": False}
        model = GPT(GPTConfig(block_size=context_len, dropout=0.0, **shape))
        run = torch.compile(model) if compiled else model

        def loss_of(ids):
            targets = torch.roll(ids, -1, 1)
            targets[:, -1] = -1
            return run(ids, targets)[1]

        seconds = plain(model, loss_of, batch_size, context_len)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps([batch_size * context_len / seconds, peak]))


def run_case(args, kind, recipe, batch_size=8, context_len=512):
    """(tokens per CPU second, MiB) of a case in a process of its own."""
    path = os.pathsep.join(filter(None, [args.nanogpt, os.environ.get("PYTHONPATH")]))
    command = [sys.executable, __file__, "--case", kind, recipe, str(batch_size), str(context_len)]
    environment = {**os.environ, **ALLOCATOR, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    command += ["--compile"] if args.compile else []
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{kind} {recipe}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def table(args):
    import torch

    from recallgap.models.describe import describe_model
    from recallgap.models.recipes import RECIPES as SHAPES
    from recallgap.pretrain.record import measured_matmul

    torch.set_num_threads(1)
    rate = measured_matmul(torch.device("cpu"), torch.bfloat16)
    print(f"contexts of 512, 8 a step, bfloat16 autocast, one core; matrix product {rate / 1e9:,.0f} GFLOP/s")
    print(f"{'model':16} {'step':16} {'tokens/s':>9} {'ratio':>6} {'utilisation':>12} {'MiB':>7}")
    for recipe in RECIPES:
        kinds = ["plain", "ours"] + (["nanogpt"] if args.nanogpt and recipe.startswith("attention") else [])
        best = dict.fromkeys(kinds, (0.0, 0.0))
        for _ in range(ROUNDS):
            for kind in kinds:
                best[kind] = max(best[kind], tuple(run_case(args, kind, recipe)))
        flops = 3 * describe_model(SHAPES[recipe]())["flops_per_token"]
        for kind, (speed, mib) in best.items():
            used = f"{speed * flops / rate:12.1%}" if kind != "nanogpt" else f"{'':12}"
            print(f"{recipe:16} {kind:16} {speed:9,.0f} {speed / best['plain'][0]:5.2f}x {used} {mib:7.0f}")


def growth(args):
    print(f"\n{'model':16} {'T':>6} {'batch':>6} {'tokens/s':>9} {'MiB':>7}")
    shapes = [(T, max(4096 // T, 1)) for T in LENGTHS] + [(512, B) for B in BATCHES if B != 4096 // 512]
    for recipe in RECIPES:
        for T, B in shapes:
            speed, mib = run_case(args, "ours", recipe, B, T)
            print(f"{recipe:16} {T:6} {B:6} {speed:9,.0f} {mib:7.0f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--nanogpt")
    for flag in ("--growth", "--compile"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("--case", nargs=4)
    args = parser.parse_args()
    if args.case:
        kind, recipe, batch_size, context_len = args.case
        measure(kind, recipe, int(batch_size), int(context_len), args.compile)
        return
    table(args)
    if args.growth:
        growth(args)


if __name__ == "__main__":
    main()
