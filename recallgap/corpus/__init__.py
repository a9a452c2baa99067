"""Text to tokens: readers, tokenizers, the corpus on disk, and how its stream is cut into contexts."""

from recallgap.corpus.build import BuildConfig, build_corpus
from recallgap.corpus.contexts import ContextPolicy, cut
from recallgap.corpus.importing import ImportConfig, import_corpus
from recallgap.corpus.store import Corpus, open_corpus, tokens_sha256, write_corpus
from recallgap.corpus.tokenizer import Tokenizer, load_tokenizer

__all__ = [
    "BuildConfig",
    "ContextPolicy",
    "Corpus",
    "ImportConfig",
    "Tokenizer",
    "build_corpus",
    "cut",
    "import_corpus",
    "load_tokenizer",
    "open_corpus",
    "tokens_sha256",
    "write_corpus",
]
