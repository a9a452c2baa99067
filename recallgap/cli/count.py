"""recallgap count TRAIN... --for CORPUS: how often a corpus' n-grams occur in training."""

import json
from pathlib import Path
from typing import Annotated

import typer

from recallgap.errors import ConfigError
from recallgap.progress import note


def count(
    train: Annotated[list[Path], typer.Argument(help="Training corpora; their counts are added up.")],
    evaluation: Annotated[Path, typer.Option("--for", help="Corpus whose n-grams are counted.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the counts.")],
    orders: Annotated[str, typer.Option(help="n of the n-grams, such as 2 or 2,3,4.")] = "2",
    across_documents: Annotated[
        bool, typer.Option("--across-documents", help="Count n-grams that cross a document border too.")
    ] = False,
    task: Annotated[
        str | None, typer.Option(help="i/N: count a part only, i from 0 to N-1; merge the parts later.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
):
    """Count n-grams in training corpora. The same command continues an interrupted one."""
    from recallgap.artifact import staging_path
    from recallgap.corpus import open_corpus
    from recallgap.counts import CountConfig, count_ngrams

    config = CountConfig(across_documents=across_documents, task=_task(task) if task else None)
    continued = staging_path(out).exists()
    counts = count_ngrams(
        [open_corpus(path) for path in train],
        out,
        for_corpus=open_corpus(evaluation),
        orders=numbers("--orders", orders),
        config=config,
        overwrite=overwrite,
    )
    seconds = json.loads((out / "run.json").read_text())["seconds"]
    rate = "continued" if continued else f"{counts.n_tokens / max(seconds, 1e-3):,.0f} tokens/s"
    show(counts, rate, as_json)


def numbers(option, text, separator=","):
    """The numbers in an option such as 2,3; ConfigError where it holds anything else."""
    parts = text.split(separator)
    if not all(part.strip().isdecimal() for part in parts):
        raise ConfigError(f"reading {option} '{text}': expected whole numbers separated by '{separator}'")
    return [int(part) for part in parts]


def _task(text):
    pair = numbers("--task", text, "/")
    if len(pair) != 2:
        raise ConfigError(f"reading --task '{text}': expected i/N, such as 0/4 for the first of four")
    return tuple(pair)


def show(counts, how, as_json):
    """Print what counts hold: one line, or JSON."""
    results = counts.results
    if as_json:
        print(
            json.dumps({"counts": str(counts.path), "fingerprint": counts.fingerprint, **results}, indent=1)
        )
        return
    parts = [f"{counts.n_tokens:,} training tokens"]
    for order, of in results["orders"].items():
        skipped = f", {of['n_skipped_at_borders']:,} at document borders skipped"
        parts.append(f"{of['n_keys']:,} {order}-grams found {of['n_found']:,} times{skipped}")
    print(f"counts {counts.path}: {'; '.join(parts)}; {how}")
    if counts.coverage < 1:
        note(f"counts {counts.path} cover {counts.coverage:.1%} of the training tokens; merge all tasks")
