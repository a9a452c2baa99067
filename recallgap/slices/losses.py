"""Reading a losses artifact: one loss per corpus token, in corpus order.

Legend: T tokens of the corpus.
"""

from functools import cached_property

import numpy as np

from recallgap.artifact import Opened, open_artifact
from recallgap.slices.blocks import BLOCK, read_blocks


class Losses(Opened):
    """The losses of one model on one corpus, opened. Entry t is the loss of predicting token t."""

    def __init__(self, opened):
        super().__init__(opened)
        self.name = opened.config["model"]
        """What tables call the model."""

    def blocks(self, rows=BLOCK):
        """The losses in nats, float32, NaN where a token is not scored, `rows` tokens at a time."""
        for table in read_blocks(self.artifact.files("losses-"), ["loss"], rows):
            yield table["loss"].to_numpy()

    @cached_property
    def loss_T(self):
        """All losses in nats, float32, NaN where a token is not scored."""
        return np.concatenate([np.empty(0, np.float32), *self.blocks()])


def open_losses(path):
    """Open a losses folder made by `evaluate`."""
    return Losses(open_artifact(path, "losses"))
