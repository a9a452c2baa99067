"""One layer of every mixer, forward and backward, against named peers of the same run.

    python benchmarks/mixers.py [--batch 8] [--T 2048] [--d-model 256] [--zoology FOLDER] [--safari FOLDER]
                                [--growth]                                     on one CPU core, float32
    python benchmarks/mixers.py --device cuda [--batch 8] [--d-model 256]      bfloat16 autocast, T to 16384

Peers are transformers' own classes, and the layers of zoology and safari where checkouts of github
HazyResearch/zoology and HazyResearch/safari are given (both need einops; h3 and long_conv opt_einsum too).
Each case is a process of its own, so that its peak memory is its own. Times are CPU time, the best of ROUNDS;
MiB is the process' peak above the built layer. ratio: peer's time / ours, so more is better.
growth: the exponent of the time in T, fitted from 512 to 8192 at batch 1.

With --device cuda: milliseconds between CUDA events and torch's peak memory above the built layer, with the
kernels of recallgap/models/backends.py and without, beside flash-linear-attention's layers where it is
installed, and attention beside the bare call that does its work. THIS MODE HAS NEVER BEEN RUN: there was no
GPU to run it on.
"""

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import time

from mixer_peers import PACKAGES, peer

ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": "4294967296", "MALLOC_TRIM_THRESHOLD_": "68719476736"}
ROUNDS, GPU_WARM_UP = 3, 3
LENGTHS = (512, 1024, 2048, 4096, 8192)
GPU_LENGTHS = (2048, 4096, 8192, 16384)
OPTIONS = {
    "base_conv (long)": ("base_conv", {"kernel_len": None}),
    "base_conv (implicit)": ("base_conv", {"kernel_len": None, "implicit": True}),
    "retnet (narrow)": ("retnet", {"d_value": 64}),  # as wide as minimax' values; RetNet's are twice as wide
}
SELECTIONS = ("random", "programmatic", "learned", "full")
OPTIONS |= {f"selective ({s})": ("selective_attention", {"selection": s}) for s in SELECTIONS}
PEERS = {
    "attention": "transformers llama",
    "rwkv": "transformers rwkv",
    "mamba2": "transformers mamba2",
    "gated_delta_net": "transformers qwen3_next",
    "retnet": "transformers minimax",
    "retnet (narrow)": "transformers minimax",
    "base_conv": "zoology base_conv",
    "base_conv (long)": "zoology base_conv (long)",
    "base_conv (implicit)": "zoology base_conv (implicit)",
    "hyena": "zoology hyena",
    "h3": "zoology h3",
    "long_conv": "safari long_conv",
}
GPU_PEERS = PEERS | {
    "attention": "torch sdpa",
    "gla": "fla GatedLinearAttention",
    "retnet": "fla MultiScaleRetention",
    "delta_net": "fla DeltaNet",
    "gated_delta_net": "fla GatedDeltaNet",
    "rwkv7": "fla RWKV7Attention",
    "based": "fla BasedLinearAttention",
}


def ours(case, d_model, T):
    import torch

    from recallgap.models.mixer import MixerContext, Place, options_of
    from recallgap.models.mixers import MIXERS

    name, options = OPTIONS.get(case, (case, {}))
    cls = MIXERS[name]
    mixer = cls(d_model, options_of(name, cls, options), Place(layer=0, n_layers=4, context_len=T))
    mixer.init_weights()
    generator = torch.Generator(torch.get_default_device()).manual_seed(0)

    def forward(x_BTD):
        ids_BT = torch.randint(0, 4 * T, x_BTD.shape[:2], generator=generator)
        return mixer(x_BTD, MixerContext(ids_BT=ids_BT))

    forward.mixer = mixer
    return forward


def build(case, d_model, T):
    return (peer if case.split()[0] in PACKAGES else ours)(case, d_model, T)


def measure(case, d_model, batch, T):
    """Print CPU milliseconds of forward and backward, and MiB above the built layer, as JSON."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    layer = build(case, d_model, T)
    x_BTD = torch.randn(batch, T, d_model, requires_grad=True)
    before, best = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, math.inf
    for _ in range(ROUNDS):
        start = time.process_time()
        layer(x_BTD).sum().backward()
        best = min(best, time.process_time() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps([1000 * best, (peak - before) / 1024]))


def measure_on_gpu(case, d_model, batch, T):
    """Print milliseconds of forward and backward, MiB above the built layer, and backends, as JSON."""
    import torch

    from recallgap.models.backends import in_use

    torch.set_default_device("cuda")
    torch.manual_seed(0)
    layer = build(case, d_model, T)
    x_BTD = torch.randn(batch, T, d_model, requires_grad=True)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    before, best = torch.cuda.memory_allocated(), math.inf
    for n in range(GPU_WARM_UP + ROUNDS):
        torch.cuda.reset_peak_memory_stats()
        start.record()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            y_BTD = layer(x_BTD)
        y_BTD.float().sum().backward()
        end.record()
        torch.cuda.synchronize()
        if n >= GPU_WARM_UP:
            best = min(best, start.elapsed_time(end))
    peak = torch.cuda.max_memory_allocated()
    backends = in_use(layer.mixer, torch.bfloat16) if hasattr(layer, "mixer") else {}
    print(json.dumps([best, (peak - before) / 2**20, backends]))


def run(case, args, *, batch=None, T=None, backend="auto"):
    """What a process of its own prints of a case; None, and why on stderr, where it cannot run."""
    folders = args.zoology, args.safari, os.environ.get("PYTHONPATH")
    settings = [str(args.d_model), str(batch or args.batch), str(T or args.T)]
    command = [sys.executable, __file__, "--device", args.device, "--case", case, *settings]
    environment = {**os.environ, **ALLOCATOR, "PYTHONPATH": os.pathsep.join(filter(None, folders))}
    environment["RECALLGAP_BACKEND"] = backend
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return json.loads(done.stdout.splitlines()[-1])
    print(f"{case}: {(done.stderr.splitlines() or ['no message'])[-1]}", file=sys.stderr)
    return None


def growth(case, args):
    """Exponent of the time in T, by least squares on logarithms."""
    points = [(math.log(T), math.log(run(case, args, batch=1, T=T)[0])) for T in LENGTHS]
    mean_x, mean_y = (sum(values) / len(points) for values in zip(*points, strict=True))
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    for name, default in (("--batch", 8), ("--T", 2048), ("--d-model", 256)):
        parser.add_argument(name, type=int, default=default)
    parser.add_argument("--zoology")
    parser.add_argument("--safari")
    parser.add_argument("--growth", action="store_true")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--case", nargs=4)
    args = parser.parse_args()
    on_gpu = args.device == "cuda"
    if args.case:
        return (measure_on_gpu if on_gpu else measure)(args.case[0], *map(int, args.case[1:]))
    from recallgap.models.mixers import MIXERS

    cases = [*(name for name in MIXERS if name != "selective_attention"), *OPTIONS]
    return (print_on_gpu if on_gpu else print_on_cpu)(cases, args)


def print_on_cpu(cases, args):
    print(f"B={args.batch} T={args.T} D={args.d_model}, float32, one core, forward + backward")
    print(f"{'mixer':24} {'ms':>8} {'MiB':>7}  {'peer':24} {'ms':>8} {'MiB':>7} {'ratio':>6} {'growth':>7}")
    for case in cases:
        ms, mib = run(case, args)
        other = run(PEERS[case], args) if case in PEERS else None
        compared = (
            f"{PEERS[case]:24} {other[0]:8.0f} {other[1]:7.0f} {other[0] / ms:5.2f}x" if other else 49 * " "
        )
        exponent = f"{growth(case, args):7.2f}" if args.growth else ""
        print(f"{case:24} {ms:8.0f} {mib:7.0f}  {compared} {exponent}", flush=True)


def print_on_gpu(cases, args):
    lengths = " ".join(f"T={T:<8}" for T in GPU_LENGTHS)
    print(f"B={args.batch} D={args.d_model}, bfloat16 autocast, forward + backward; MiB at the longest T")
    print(f"{'layer':32} {lengths} {'MiB':>7}  backends")
    for case in cases:
        rows = [(case, "auto"), (case, "torch")]
        if case in GPU_PEERS:
            rows.append((GPU_PEERS[case], "auto"))
        for name, backend in rows:
            results = [run(name, args, T=T, backend=backend) for T in GPU_LENGTHS]
            times = " ".join(f"{result[0]:<10.2f}" if result else f"{'-':10}" for result in results)
            mib = f"{results[-1][1]:7.0f}" if results[-1] else f"{'-':>7}"
            told = ", ".join(f"{k}: {v}" for k, v in results[0][2].items()) if results[0] else ""
            print(f"{name:32} {times} {mib}  {told}", flush=True)


if __name__ == "__main__":
    main()
