"""MQAR sequences -> a folder: ids.npy and targets.npy, with what they were made from."""

import dataclasses
from pathlib import Path

import numpy as np

from recallgap.artifact import open_artifact
from recallgap.errors import ConfigError
from recallgap.mqar.config import IGNORED
from recallgap.mqar.generate import generate
from recallgap.mqar.zoology_preset import LEGACY_SEEDS, generate_like_zoology
from recallgap.registry import pick
from recallgap.staging import stage, up_to_date

KIND = "mqar-data"
PRESETS = {
    "own": "keys, values and fillers never collide",
    "zoology": "the bytes of zoology's generator for this seed, which seeds its random fillers too",
}


def write_data(config, n_sequences, out, *, seed, preset="own", overwrite=False):
    """Write n_sequences of `config` into folder `out`; returns it opened, as an `Artifact`.

    ids.npy and targets.npy are (n_sequences, context_len) int64. preset: one of PRESETS. Where `out` holds
    this very data already, it is opened.
    """
    pick("preset", PRESETS, preset)
    doing = f"writing MQAR data {out}"
    if n_sequences < 1:
        raise ConfigError(f"{doing}: {n_sequences} sequences were asked for, but it takes at least 1")
    if not 0 <= seed < LEGACY_SEEDS:
        raise ConfigError(f"{doing}: the seed is {seed}, but seeds go from 0 to {LEGACY_SEEDS - 1}")
    plan = {
        "kind": KIND,
        "config": {
            **dataclasses.asdict(config),
            "n_sequences": n_sequences,
            "seed": seed,
            "preset": preset,
        },
        "inputs": {},
    }
    if not overwrite and up_to_date(out, **plan):
        return open_artifact(out, KIND)
    with stage(out, **plan, overwrite=overwrite) as staging:
        if preset == "zoology":
            ids_BT, targets_BT = generate_like_zoology(config, n_sequences, seed=seed, torch_seed=seed)
        else:
            ids_BT, targets_BT = generate(config, n_sequences, np.random.default_rng(seed))
        for name, array_BT in (("ids.npy", ids_BT), ("targets.npy", targets_BT)):
            with staging.write(name) as path, open(path, "wb") as file:
                np.save(file, array_BT)
        staging.results = {
            "n_tokens": ids_BT.size,
            "n_queries": int(np.count_nonzero(targets_BT != IGNORED)),
        }
    return open_artifact(Path(out), KIND)
