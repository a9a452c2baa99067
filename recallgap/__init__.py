"""recallgap measures where one language model loses to another on real text.

corpus    text to tokens: build_corpus, import_corpus, open_corpus, write_corpus
counts    training counts of the n-grams of an evaluation corpus: count_ngrams, merge_counts, open_counts
recall    which tokens are AR hits: label, open_labels
evaluate  per-token loss of any causal language model: evaluate, load_checkpoint
pretrain  language models from scratch, comparable with each other: pretrain
slices    the gap and where it lies, with intervals: compare, open_gap
report    tables, figures and a page: write_report
pipeline  all of it in one cached call: ar_perplexity

>>> import recallgap as rg
>>> rg.__version__
'0.1.0'
"""

import importlib

__version__ = "0.1.0"

_HOME = {
    "ar_perplexity": "pipeline",
    "build_corpus": "corpus",
    "compare": "slices",
    "count_ngrams": "counts",
    "evaluate": "evaluate",
    "import_corpus": "corpus",
    "label": "recall",
    "load_checkpoint": "evaluate",
    "merge_counts": "counts",
    "open_corpus": "corpus",
    "open_counts": "counts",
    "open_gap": "slices",
    "open_labels": "recall",
    "pretrain": "pretrain",
    "write_corpus": "corpus",
    "write_report": "report",
}
__all__ = sorted(_HOME)


def __getattr__(name):
    """Public names are loaded when first used, so that `import recallgap` stays light."""
    if name in _HOME:
        return getattr(importlib.import_module(f"recallgap.{_HOME[name]}"), name)
    raise AttributeError(f"module 'recallgap' has no attribute '{name}'")
