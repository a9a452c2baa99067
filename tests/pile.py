"""A stand-in for the Pile on the hub: the same files and fields, little text, read through `datasets`."""

import json

import datasets
import numpy as np
import zstandard

NAME = "monology/pile-uncopyrighted"
DOMAINS = ("Pile-CC", "Github", "ArXiv")
WORDS = ["the", "quick", "brown", "fox", "jumps", "again,", "17", "(times)", "<|endoftext|>", "caf\u00e9"]


def rows(n, seed):
    """Rows as the Pile has them; every ninth text is empty."""
    random = np.random.default_rng(seed)
    for number in range(n):
        text = " ".join(random.choice(WORDS, random.integers(1, 40))) if number % 9 else ""
        yield {"text": text, "meta": {"pile_set_name": DOMAINS[random.integers(len(DOMAINS))]}}


def write_pile(folder, *, n_files=3, n_rows=400, n_validation=60):
    """Write train/00.jsonl.zst, ... and val.jsonl.zst, as the hub has them; returns the folder."""
    sizes = {f"train/{n:02d}.jsonl.zst": n_rows for n in range(n_files)}
    for seed, (name, n) in enumerate({**sizes, "val.jsonl.zst": n_validation}.items()):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        lines = "".join(json.dumps(row) + "\n" for row in rows(n, seed))
        (folder / name).write_bytes(zstandard.compress(lines.encode()))
    return folder


def serve(monkeypatch, folder):
    """Let `datasets` find `folder` under the Pile's name; all the rest is its own work, as on the hub."""
    load = datasets.load_dataset
    monkeypatch.setattr(
        datasets, "load_dataset", lambda name, *a, **k: load(str(folder) if name == NAME else name, *a, **k)
    )
