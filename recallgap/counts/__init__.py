"""Training counts of the n-grams of an evaluation corpus.

table      an exact hash table of n-grams of several orders
keys       the n-grams of the evaluation corpus
tokens     tokens as they are counted, with document borders
config     how is counted; which corpora fit each other
plan       blocks of the training corpora, tasks
counting   count_ngrams
merging    merge_counts
store      the artifact, and looking n-grams up in it
"""

from recallgap.counts.config import CountConfig, check_fit
from recallgap.counts.counting import count_ngrams
from recallgap.counts.merging import merge_counts
from recallgap.counts.store import Counts, open_counts

__all__ = ["CountConfig", "Counts", "check_fit", "count_ngrams", "merge_counts", "open_counts"]
