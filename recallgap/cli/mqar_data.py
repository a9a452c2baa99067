"""recallgap mqar data: sequences of multi-query associative recall, as arrays on disk."""

import json
from pathlib import Path
from typing import Annotated

import typer

from recallgap.cli.count import numbers


def data(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of ids.npy and targets.npy.")],
    sequences: Annotated[int, typer.Option(help="How many sequences.")] = 100_000,
    vocab_size: Annotated[int, typer.Option(help="Tokens to choose from; 0 is filler.")] = 8192,
    context_len: Annotated[int, typer.Option(help="Tokens of a sequence, N.")] = 64,
    pairs: Annotated[int, typer.Option(help="Keys of a sequence, D.")] = 4,
    alpha: Annotated[float, typer.Option(help="Power law of the distances; 1 is uniform.")] = 0.01,
    fillers: Annotated[str, typer.Option(help="zero or random.")] = "zero",
    passes: Annotated[int, typer.Option(help="How often each key is queried.")] = 1,
    overwritten: Annotated[int, typer.Option(help="Keys written again with another value.")] = 0,
    key_len: Annotated[int, typer.Option(help="Tokens of a key.")] = 1,
    compositional: Annotated[
        bool, typer.Option("--compositional", help="Keys (--key-len 2) that share their tokens.")
    ] = False,
    distances: Annotated[
        str, typer.Option(help="Tokens from a key to its query, such as 8,16; in place of the power law.")
    ] = "",
    seed: Annotated[int, typer.Option(help="The same seed, the same bytes.")] = 0,
    preset: Annotated[str, typer.Option(help="own, or zoology: its generator's very bytes.")] = "own",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
):
    """Write MQAR sequences: pairs of key and value, then queries; targets are -100 but at queries."""
    from recallgap.mqar.config import MqarConfig
    from recallgap.mqar.data import write_data

    config = MqarConfig(
        vocab_size=vocab_size,
        context_len=context_len,
        n_pairs=pairs,
        alpha=alpha,
        fillers=fillers,
        n_passes=passes,
        n_overwritten=overwritten,
        key_len=key_len,
        compositional=compositional,
        distances=tuple(numbers("--distances", distances)) if distances else None,
    )
    made = write_data(config, sequences, out, seed=seed, preset=preset, overwrite=overwrite)
    if as_json:
        print(json.dumps({"data": str(out), "fingerprint": made.fingerprint, **made.results}, indent=1))
        return
    print(
        f"MQAR data {out}: {sequences:,} sequences of {context_len:,} tokens, {pairs} pairs each, "
        f"{made.results['n_queries']:,} queries; vocabulary {vocab_size:,}, {fillers} fillers, seed {seed}"
        f"{', as zoology makes them' if preset == 'zoology' else ''}"
    )
