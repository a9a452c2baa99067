"""Per-token losses: this library against a plain loop and lm-evaluation-harness, on the same tokens.

    python benchmarks/evaluate.py [--contexts 8] [--threads 1]
    python benchmarks/evaluate.py --tiles

The model is Llama-like with random weights: 16.0 M parameters (hidden 256, 4 layers, tied), vocabulary
50,257, contexts of 1,024 tokens. Every row runs in a process of its own, so that its peak memory is its own.
Cores are often shared: tokens per CPU-second is the steadier number. lm_eval is used where it is installed.
"""

import argparse
import importlib.util
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

CONTEXT_LEN = 1024
VOCAB = 50257
SHAPE = {"hidden_size": 256, "intermediate_size": 688, "num_hidden_layers": 4, "num_attention_heads": 4}
TOOLS = ("recallgap", "plain loop", "lm_eval")
TILE_SHAPES = ((256, 1024), (512, 1024), (512, 2048), (512, 4096), (1024, 1024), (1024, 2048), (2048, 2048))


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def peak_mb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def llama(dtype):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCAB, tie_word_embeddings=True, max_position_embeddings=CONTEXT_LEN, **SHAPE
    )
    return LlamaForCausalLM(config).to(getattr(torch, dtype)).eval()


def recallgap_runner(model, ids_CT, dtype):
    from recallgap.corpus import write_corpus
    from recallgap.evaluate import Checkpoint, EvaluateConfig, evaluate

    checkpoint, folder = Checkpoint.of(model, name="llama"), Path(tempfile.mkdtemp())
    config = EvaluateConfig(context_len=CONTEXT_LEN, dtype=dtype)

    def run(n_contexts):
        corpus = write_corpus(folder / f"corpus-{n_contexts}", ids_CT[:n_contexts], vocab_size=VOCAB)
        return evaluate(checkpoint, corpus, folder / f"losses-{n_contexts}", config=config).results[
            "loss_sum"
        ]

    return run


def plain_loop_runner(model, ids_CT, _dtype):
    import torch

    @torch.inference_mode()
    def run(n_contexts):
        total = 0.0
        for ids_T in torch.from_numpy(ids_CT[:n_contexts]):
            logits = model(input_ids=ids_T[None, :-1], use_cache=False).logits[0].float()
            total += float(torch.nn.functional.cross_entropy(logits, ids_T[1:], reduction="sum"))
        return total

    return run


def lm_eval_runner(model, ids_CT, dtype):
    import tokenizers
    import transformers
    from lm_eval.models.huggingface import HFLM

    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0}, unk_token="a"))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="a", eos_token="a")
    harness = HFLM(pretrained=model, tokenizer=tokenizer, batch_size=1, max_length=CONTEXT_LEN, dtype=dtype)

    def run(n_contexts):
        asked = [(("", ""), [int(ids_T[0])], ids_T[1:].tolist()) for ids_T in ids_CT[:n_contexts]]
        return -sum(found for found, _ in harness._loglikelihood_tokens(asked, disable_tqdm=True))

    return run


RUNNERS = dict(zip(TOOLS, (recallgap_runner, plain_loop_runner, lm_eval_runner), strict=True))


def measure(tool, dtype, n_contexts, threads):
    """One row: speed of the whole tool after a warm-up on one context, its loss a token, its peak memory."""
    import torch

    torch.set_num_threads(threads)
    ids_CT = np.random.default_rng(0).integers(0, VOCAB, (n_contexts, CONTEXT_LEN))
    model = llama(dtype)
    run = RUNNERS[tool](model, ids_CT, dtype)
    run(1)
    before_mb, wall, cpu = peak_mb(), time.perf_counter(), cpu_seconds()
    loss_sum = run(n_contexts)
    wall, cpu = time.perf_counter() - wall, cpu_seconds() - cpu
    n_tokens = n_contexts * CONTEXT_LEN
    return {
        "cpu": n_tokens / cpu,
        "wall": n_tokens / wall,
        "mb": max(peak_mb(), before_mb),
        "loss": loss_sum / (n_contexts * (CONTEXT_LEN - 1)),
    }


def compare_tools(n_contexts, threads):
    print(f"{n_contexts} contexts of {CONTEXT_LEN} tokens, {threads} thread(s)")
    print(
        f"{'tool':12} {'dtype':9} {'tokens/CPU-s':>12} {'tokens/s':>9} {'peak RSS MB':>12} {'nats/token':>11}"
    )
    for dtype in ("float32", "bfloat16"):
        for tool in TOOLS:
            if tool == "lm_eval" and importlib.util.find_spec("lm_eval") is None:
                print(f"{tool:12} not installed")
                continue
            one = ["--one", tool, dtype, "--contexts", str(n_contexts), "--threads", str(threads)]
            done = subprocess.run(
                [sys.executable, __file__, *one], capture_output=True, text=True, check=True
            )
            row = json.loads(done.stdout.splitlines()[-1])
            speeds = f"{row['cpu']:12,.0f} {row['wall']:9,.0f}"
            print(f"{tool:12} {dtype:9} {speeds} {row['mb']:12,.0f} {row['loss']:11.6f}", flush=True)


def compare_tiles(threads):
    """The head alone, 2,048 tokens, best of 3, for tile shapes (tokens x vocabulary rows)."""
    import torch

    from recallgap.evaluate import heads

    torch.set_num_threads(threads)
    columns = " ".join(f"{f'{tokens}x{rows}':>10}" for tokens, rows in TILE_SHAPES)
    print(f"tokens/CPU-s of the head alone\n{'hidden dtype':16} {'full CE':>10} {columns}")
    for hidden_size in (256, 768):
        for dtype in (torch.float32, torch.bfloat16):
            torch.manual_seed(0)
            hidden_ND = torch.randn(2048, hidden_size).to(dtype)
            weight_VD = (0.1 * torch.randn(VOCAB, hidden_size)).to(dtype)
            targets_N = torch.randint(0, VOCAB, (2048,))
            head = heads.TiledHead(weight_VD, None, heads.Tail(1.0, None))

            def full(hidden_ND=hidden_ND, weight_VD=weight_VD, targets_N=targets_N):
                logits = (hidden_ND @ weight_VD.T).float()
                return torch.nn.functional.cross_entropy(logits, targets_N, reduction="none")

            speeds = [best_speed(full)]
            for shape in TILE_SHAPES:
                heads.TILES["cpu"] = shape
                speeds.append(best_speed(lambda head=head, h=hidden_ND, t=targets_N: head.losses_of(h, t)))
            row = " ".join(f"{speed:10,.0f}" for speed in speeds)
            print(f"{hidden_size:6} {str(dtype)[6:]:9} {row}", flush=True)


def best_speed(work, repeats=3):
    """Tokens per CPU-second of the fastest of some runs on 2,048 tokens."""
    import torch

    seconds = []
    for _ in range(repeats + 1):
        start = cpu_seconds()
        with torch.no_grad():
            work()
        seconds.append(cpu_seconds() - start)
    return 2048 / min(seconds[1:])


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--contexts", type=int, default=8)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tiles", action="store_true", help="compare tile shapes instead")
    parser.add_argument("--one", nargs=2, metavar=("TOOL", "DTYPE"), help="print one row as JSON")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(*options.one, options.contexts, options.threads)))
    elif options.tiles:
        compare_tiles(options.threads)
    else:
        compare_tools(options.contexts, options.threads)


if __name__ == "__main__":
    main()
