"""Labels and losses -> gap: where one model loses to another, slice by slice, with honest intervals.

definitions   SLICES: ways to part the scored tokens
blocks        reading two token tables side by side
losses        reading per-token losses
sums          tokens -> per-document sums
intervals     per-document sums -> estimates with intervals
estimates     both applied to every slice, and the warnings
comparison    the checks that inputs belong together, and writing the artifact
gap           reading the artifact
"""

from recallgap.slices.comparison import compare
from recallgap.slices.definitions import SLICES
from recallgap.slices.estimates import few_documents
from recallgap.slices.gap import Gap, open_gap
from recallgap.slices.losses import Losses, open_losses

__all__ = ["SLICES", "Gap", "Losses", "compare", "few_documents", "open_gap", "open_losses"]
