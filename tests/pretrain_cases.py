"""A tiny pretraining for tests: corpora with recall in them, a model of a few thousand parameters."""

import numpy as np
import torch

from recallgap.corpus import open_corpus, write_corpus
from recallgap.models import RecallGapConfig
from recallgap.pretrain import PretrainConfig, RunOptions, pretrain
from recallgap.recall import LabelConfig

torch.set_num_threads(1)
V, T = 31, 16
CPU = RunOptions(device="cpu", device_batch_size=4, save_minutes=0)
"""Saves whenever it may."""


def corpus(path, n_documents=40, seed=0, vocab_size=V):
    """Documents of random length in which bigrams repeat; 0 ends each. Opened where it is there already."""
    if path.exists():
        return open_corpus(path)
    rng = np.random.default_rng(seed)
    documents = [np.append(rng.integers(1, 9, rng.integers(5, 60)), 0) for _ in range(n_documents)]
    return write_corpus(path, documents, vocab_size=vocab_size, separator_id=0)


def model_config(layers=("base_conv", {"mixer": "attention", "n_heads": 2}), **changes):
    shape = {"vocab_size": V, "d_model": 8, "context_len": T, "dropout": 0.1}
    return RecallGapConfig(layers=list(layers), **{**shape, **changes})


def config(**changes):
    settings = {"context_len": T, "batch_size": 8, "tokens": 12 * 8 * T, "learning_rate": 3e-3}
    return PretrainConfig(**{**settings, "evaluations": 3, "precision": "fp32", **changes})


def run(folder, out="out", *, model=None, options=CPU, overwrite=False, **changes):
    """Pretrain the tiny model in `folder`; returns the `TrainedCheckpoint`."""
    train, evaluation = corpora(folder)
    return pretrain(
        model or model_config(),
        train,
        evaluation,
        folder / out,
        config=config(**changes),
        label_config=LabelConfig(context_len=T, max_train_count=20),
        options=options,
        overwrite=overwrite,
    )


def corpora(folder):
    return corpus(folder / "train"), corpus(folder / "valid", n_documents=8, seed=1)
