"""One layer of every mixer, forward and backward on one CPU core, against named peers of the same run.

    python benchmarks/mixers.py [--batch 8] [--T 2048] [--d-model 256] [--zoology FOLDER] [--growth]

Peers are transformers' own classes, and zoology's layers where a checkout of github HazyResearch/zoology is
given. Each case is a process of its own, so that its peak memory is its own. Times are CPU time, the best of
ROUNDS; MiB is the process' peak above the built layer. ratio: peer's time / ours, so more is better.
growth: the exponent of the time in T, fitted from 512 to 8192 at batch 1.
"""

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import time

ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": "4294967296", "MALLOC_TRIM_THRESHOLD_": "68719476736"}
ROUNDS = 3
LENGTHS = (512, 1024, 2048, 4096, 8192)
OPTIONS = {"base_conv (long)": ("base_conv", {"kernel_len": None})}
SELECTIONS = ("random", "programmatic", "learned", "full")
OPTIONS |= {f"selective ({s})": ("selective_attention", {"selection": s}) for s in SELECTIONS}
PEERS = {
    "attention": "transformers llama",
    "rwkv": "transformers rwkv",
    "mamba2": "transformers mamba2",
    "gated_delta_net": "transformers qwen3_next",
    "retnet": "transformers minimax",
    "base_conv": "zoology base_conv",
    "hyena": "zoology hyena",
    "h3": "zoology h3",
}


def ours(case, d_model, T):
    import torch

    from recallgap.models.mixer import MixerContext, Place, options_of
    from recallgap.models.mixers import MIXERS

    name, options = OPTIONS.get(case, (case, {}))
    cls = MIXERS[name]
    mixer = cls(d_model, options_of(name, cls, options), Place(layer=0, n_layers=4, context_len=T))
    mixer.init_weights()
    generator = torch.Generator().manual_seed(0)

    def forward(x_BTD):
        ids_BT = torch.randint(0, 4 * T, x_BTD.shape[:2], generator=generator)
        return mixer(x_BTD, MixerContext(ids_BT=ids_BT))

    return forward


def peer(case, d_model, T):
    import transformers as hf

    common = {"hidden_size": d_model, "num_hidden_layers": 2}
    if case == "transformers llama":
        from transformers.models.llama.modeling_llama import LlamaAttention, LlamaRotaryEmbedding

        config = hf.LlamaConfig(**common, num_attention_heads=8, attn_implementation="sdpa")
        layer, rotary = LlamaAttention(config, 0), LlamaRotaryEmbedding(config)
        return lambda x: layer(x, rotary(x, position_ids(x)), None)[0]
    if case == "transformers rwkv":
        from transformers.models.rwkv.modeling_rwkv import RwkvSelfAttention

        layer = RwkvSelfAttention(hf.RwkvConfig(**common, context_length=T), layer_id=1)
        return lambda x: layer(x)[0]
    if case == "transformers mamba2":
        from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer

        sizes = {"num_heads": 2 * d_model // 64, "head_dim": 64, "state_size": 128, "n_groups": 1}
        return Mamba2Mixer(hf.Mamba2Config(**common, **sizes, expand=2), 0)
    if case == "transformers qwen3_next":
        from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextGatedDeltaNet

        heads = {"linear_num_value_heads": 4, "linear_num_key_heads": 4}
        sizes = {"linear_key_head_dim": 48, "linear_value_head_dim": 96}
        return Qwen3NextGatedDeltaNet(hf.Qwen3NextConfig(**common, **heads, **sizes), 0)
    if case == "transformers minimax":
        from transformers.models.minimax.modeling_minimax import MiniMaxLightningAttention

        layer = MiniMaxLightningAttention(hf.MiniMaxConfig(**common, num_attention_heads=4, head_dim=64), 1)
        return lambda x: layer(x, None, None)[0]
    if case == "zoology base_conv":
        from zoology.mixers.base_conv import BaseConv

        return BaseConv(d_model, T, kernel_size=3)
    if case == "zoology hyena":
        from zoology.mixers.hyena import Hyena

        return Hyena(d_model, T)
    from zoology.mixers.h3.h3 import H3

    return H3(d_model, l_max=T)


def position_ids(x_BTD):
    import torch

    return torch.arange(x_BTD.shape[1]).expand(x_BTD.shape[:2])


def measure(case, d_model, batch, T):
    """Print CPU milliseconds of forward and backward, and MiB above the built layer, as JSON."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    layer = (peer if case.split()[0] in ("transformers", "zoology") else ours)(case, d_model, T)
    x_BTD = torch.randn(batch, T, d_model, requires_grad=True)
    before, best = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, math.inf
    for _ in range(ROUNDS):
        start = time.process_time()
        layer(x_BTD).sum().backward()
        best = min(best, time.process_time() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps([1000 * best, (peak - before) / 1024]))


def run(case, args, *, batch=None, T=None):
    """(milliseconds, MiB) of a case in a process of its own, or None where it cannot run."""
    path = os.pathsep.join(filter(None, [args.zoology, os.environ.get("PYTHONPATH")]))
    settings = [str(args.d_model), str(batch or args.batch), str(T or args.T)]
    command = [sys.executable, __file__, "--case", case, *settings]
    environment = {**os.environ, **ALLOCATOR, "PYTHONPATH": path}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else None


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
    parser.add_argument("--growth", action="store_true")
    parser.add_argument("--case", nargs=4)
    args = parser.parse_args()
    if args.case:
        return measure(args.case[0], *map(int, args.case[1:]))
    from recallgap.models.mixers import MIXERS

    print(f"B={args.batch} T={args.T} D={args.d_model}, float32, one core, forward + backward")
    print(f"{'mixer':24} {'ms':>8} {'MiB':>7}  {'peer':24} {'ms':>8} {'MiB':>7} {'ratio':>6} {'growth':>7}")
    names = [name for name in MIXERS if name != "selective_attention"]
    for case in [*names, *OPTIONS]:
        ms, mib = run(case, args)
        other = run(PEERS[case], args) if case in PEERS else None
        compared = (
            f"{PEERS[case]:24} {other[0]:8.0f} {other[1]:7.0f} {other[0] / ms:5.2f}x" if other else 49 * " "
        )
        exponent = f"{growth(case, args):7.2f}" if args.growth else ""
        print(f"{case:24} {ms:8.0f} {mib:7.0f}  {compared} {exponent}", flush=True)
    return None


if __name__ == "__main__":
    main()
