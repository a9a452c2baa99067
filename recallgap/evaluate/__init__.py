"""Losses of a causal language model, one per token of a corpus, on disk. Importing this loads no torch."""

from recallgap.callable_module import make_callable
from recallgap.evaluate.checkpoint import Checkpoint, load_checkpoint
from recallgap.evaluate.config import EvaluateConfig
from recallgap.evaluate.files import CheckpointFiles, find_checkpoint
from recallgap.evaluate.run import evaluate

__all__ = [
    "Checkpoint",
    "CheckpointFiles",
    "EvaluateConfig",
    "evaluate",
    "find_checkpoint",
    "load_checkpoint",
]

make_callable(__name__)
