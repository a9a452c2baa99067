"""Tokens and training counts -> labels: what each token repeats of its context, and which are AR hits.

repeats     pure functions on arrays: repeats, ar_hits
kernels     the compiled loops behind them
config      LabelConfig
labelling   label: a whole corpus, shard by shard
store       the artifact
"""

from recallgap.recall.config import LabelConfig
from recallgap.recall.labelling import label
from recallgap.recall.repeats import Repeats, ar_hits, repeats
from recallgap.recall.store import Labels, open_labels

__all__ = ["LabelConfig", "Labels", "Repeats", "ar_hits", "label", "open_labels", "repeats"]
