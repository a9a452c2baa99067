"""Pretraining: one recipe, one corpus, one order of data for every architecture."""

from recallgap.callable_module import make_callable
from recallgap.pretrain.config import PretrainConfig, RunOptions
from recallgap.pretrain.estimate import estimate
from recallgap.pretrain.recipe import resolved
from recallgap.pretrain.run import TrainedCheckpoint, pretrain

__all__ = ["PretrainConfig", "RunOptions", "TrainedCheckpoint", "estimate", "pretrain", "resolved"]

make_callable(__name__)
