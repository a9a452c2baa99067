"""Causal convolution on this machine: which form is faster for which kernel length.

    python benchmarks/convolution.py [--d-model 256 768] [--context-len 2048] [--threads 1] [--rounds 5]

Prints CPU milliseconds of a forward pass, and of a forward and backward pass (best of the rounds, which visit
all forms in turn, so that other load hits them alike):
    direct, fft     both forms of recallgap/models/convolution.py, on time-major and on channel-major input;
                    LONGEST_DIRECT is where they cross in the lower table
    conv1d          torch's, between two transpositions, padding K - 1 and its output cut (as in Zoology)
    conv2d          torch's, of height 1 and channels last, which needs no transposition
    fft 2T          transforms of 2 T points of the whole batch under autograd (as in safari and Zoology)
"""

import argparse
import datetime
import os
import platform
import sys
import time

MALLOC = {"MALLOC_MMAP_THRESHOLD_": "4294967296", "MALLOC_TRIM_THRESHOLD_": "68719476736"}
"""Without these, glibc returns every large tensor to the system, and page faults drown what is measured."""
KERNEL_LENS = (1, 2, 3, 4, 8, 12, 16, 24, 32, 64, 128, 256, 512, 2048)
LONGEST = {"direct time": 64, "direct channel": 64, "conv1d": 64, "conv2d": 512}
"""Forms that would take minutes beyond a length, and are not of interest there."""
LONGEST_CONV2D_TRAINED = 16


def main():
    args = parsed()
    if any(os.environ.get(name) != value for name, value in MALLOC.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | MALLOC)
    import torch

    torch.set_num_threads(args.threads)
    print(f"{datetime.date.today()}, {platform.processor() or platform.machine()}, torch {torch.__version__}")
    print(f"B {args.batch_size}, T {args.context_len}, {args.threads} threads, float32, CPU ms")
    for D in args.d_model:
        for backward in (False, True):
            print(f"\nD {D}, {'forward and backward' if backward else 'forward'}")
            print(f"{'K':>6}" + "".join(f"{name:>15}" for name in forms()))
            for K in args.kernel_len:
                best = measured(args, D, K, backward)
                cells = "".join(f"{best[name]:15.1f}" if name in best else f"{'-':>15}" for name in forms())
                print(f"{K:6}{cells}", flush=True)


def parsed():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--d-model", type=int, nargs="+", default=[256, 768])
    parser.add_argument("--kernel-len", type=int, nargs="+", default=KERNEL_LENS)
    parser.add_argument("--context-len", type=int, default=2048)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    return parser.parse_args()


def forms():
    """{name: (is its input channel-major, function of x_BDT and kernel_DK)}."""
    from recallgap.models.convolution import direct_conv, fft_conv

    return {
        "direct time": (False, direct_conv),
        "fft time": (False, fft_conv),
        "direct channel": (True, direct_conv),
        "fft channel": (True, fft_conv),
        "conv1d": (False, conv1d),
        "conv2d": (False, conv2d),
        "fft 2T": (False, fft_2t),
    }


def measured(args, D, K, backward):
    """Least milliseconds of each form."""
    import torch

    x_BTD, dy_BTD = torch.randn(2, args.batch_size, args.context_len, D)
    runs = {}
    for name, (channel_major, function) in forms().items():
        limit = LONGEST_CONV2D_TRAINED if backward and name == "conv2d" else LONGEST.get(name, K)
        if limit < K:
            continue
        x_BDT, dy_BDT = (in_memory(z_BTD, channel_major) for z_BTD in (x_BTD, dy_BTD))
        leaves = [x_BDT.requires_grad_(), (torch.randn(D, K) / K).requires_grad_()]
        runs[name] = lambda f=function, a=leaves, dy=dy_BDT: run(f, a, dy, backward)
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(args.rounds):
        for name, function in runs.items():
            start = time.process_time()
            function()
            best[name] = min(best[name], 1e3 * (time.process_time() - start))
    return best


def in_memory(x_BTD, channel_major):
    """x as (B, D, T), a leaf, that lies in memory as (D, B, T) or as (B, T, D)."""
    if channel_major:
        return x_BTD.permute(2, 0, 1).contiguous().transpose(0, 1)
    return x_BTD.clone().transpose(1, 2)


def run(function, leaves, dy_BDT, backward):
    import torch

    with torch.set_grad_enabled(backward):
        y_BDT = function(*leaves)
    if backward:
        torch.autograd.grad(y_BDT, leaves, dy_BDT)


def conv1d(x_BDT, kernel_DK):
    from torch.nn import functional as F

    D, K = kernel_DK.shape
    y_BDT = F.conv1d(x_BDT, kernel_DK.flip(1).unsqueeze(1), padding=K - 1, groups=D)
    return y_BDT[..., : x_BDT.shape[2]]


def conv2d(x_BDT, kernel_DK):
    from torch.nn import functional as F

    D, K = kernel_DK.shape
    taps_D11K = kernel_DK.flip(1)[:, None, None]
    y_BD1T = F.conv2d(x_BDT.unsqueeze(2), taps_D11K, padding=(0, K - 1), groups=D)
    return y_BD1T.squeeze(2)[..., : x_BDT.shape[2]]


def fft_2t(x_BDT, kernel_DK):
    import torch

    T = x_BDT.shape[2]
    x_f, kernel_f = torch.fft.rfft(x_BDT, n=2 * T), torch.fft.rfft(kernel_DK, n=2 * T)
    return torch.fft.irfft(x_f * kernel_f, n=2 * T)[..., :T]


if __name__ == "__main__":
    main()
