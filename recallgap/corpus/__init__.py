"""Text to tokens: readers, tokenizers, the corpus on disk, and how its stream is cut into contexts."""

from recallgap.corpus.contexts import ContextPolicy, cut
from recallgap.corpus.store import Corpus, open_corpus, tokens_sha256, write_corpus

__all__ = ["ContextPolicy", "Corpus", "cut", "open_corpus", "tokens_sha256", "write_corpus"]
