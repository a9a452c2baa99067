"""Fixtures that several parts share."""

import hypothesis
import pytest
import tokenizers

hypothesis.settings.register_profile("no deadline", deadline=None)  # a busy machine is no failure
hypothesis.settings.load_profile("no deadline")

SAMPLE = "the quick brown fox jumps over the lazy dog, and the dog jumps over the fox again. " * 4


@pytest.fixture(scope="session")
def tokenizer_file(tmp_path_factory):
    """A tokenizer.json: byte-level BPE of 300 entries, <|endoftext|> = 0."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([SAMPLE], trainer)
    path = tmp_path_factory.mktemp("tokenizer") / "small.json"
    tokenizer.save(str(path))
    return path
