"""Fixtures that several parts share."""

import subprocess

import hypothesis
import pytest
import tokenizers

hypothesis.settings.register_profile("no deadline", deadline=None)  # a busy machine is no failure
hypothesis.settings.load_profile("no deadline")

DISK_KILOBYTES = 400
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


@pytest.fixture
def disk(tmp_path):
    """A very small disk."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_KILOBYTES}k", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(mount, check=False, capture_output=True).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("no right to mount a tmpfs here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)
