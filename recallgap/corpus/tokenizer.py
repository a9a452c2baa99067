"""Tokenizers, from whatever form they come in, as one object that turns text into ids.

Forms: a tokenizer.json; a Hugging Face folder or hub name; a folder with the GPT-2 pair encoder.json and
vocab.bpe (or vocab.json and merges.txt); a .gguf file. Texts are encoded without the special tokens that a
tokenizer would put around them (BOS, EOS, templates); one that a text spells out itself is recognized.
"""

import difflib
import importlib.util
import json
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import tokenizers

from recallgap.artifact import fingerprint_of
from recallgap.errors import CheckpointError, ConfigError
from recallgap.progress import note

GPT2_PAIRS = (("encoder.json", "vocab.bpe"), ("vocab.json", "merges.txt"))
HUGGING_FACE_FILES = ("tokenizer_config.json", "special_tokens_map.json", "config.json")
END_OF_TEXT = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>")
"""Where nothing names the EOS of a tokenizer.json: the first of these that it has as a special token."""
HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
FILE_SUFFIXES = {".json", ".gguf", ".bpe", ".txt", ".model"}


@dataclass(frozen=True, eq=False)
class Tokenizer:
    """A tokenizer, opened. Two with one `fingerprint` give the same ids the same meaning."""

    name: str
    backend: tokenizers.Tokenizer
    bos_id: int | None = None
    eos_id: int | None = None

    @cached_property
    def vocab_size(self):
        """Largest id + 1, added tokens included: what a table indexed by id needs."""
        return max(self.backend.get_vocab(with_added_tokens=True).values()) + 1

    @cached_property
    def fingerprint(self):
        """sha256 (hex) of the vocabulary (token -> id) and, for BPE, its merges in order."""
        merges = json.loads(self.backend.to_str())["model"].get("merges", [])
        pairs = [merge.split(" ") if isinstance(merge, str) else merge for merge in merges]
        return fingerprint_of({"vocab": self.backend.get_vocab(with_added_tokens=True), "merges": pairs})

    def encode_batch(self, texts):
        """One int32 array of ids for each text, without special tokens; all cores take part."""
        encodings = self.backend.encode_batch_fast(texts, add_special_tokens=False)
        return [np.array(encoding.ids, dtype=np.int32) for encoding in encodings]

    def decode(self, ids):
        """The text of ids, special tokens included."""
        return self.backend.decode([int(i) for i in ids], skip_special_tokens=False)

    def token_id(self, token):
        """Id of a token given by its text; ConfigError with the nearest token if there is none."""
        found = self.backend.token_to_id(token)
        if found is not None:
            return found
        special = [added.content for added in self.backend.get_added_tokens_decoder().values()]
        near = difflib.get_close_matches(token, special, 1) or difflib.get_close_matches(
            token, self.backend.get_vocab(), 1
        )
        hint = f" Did you mean '{near[0]}'?" if near else ""
        names = f" Its special tokens: {', '.join(special)}." if special else ""
        raise ConfigError(f"tokenizer {self.name} has no token '{token}'.{hint}{names}")


def load_tokenizer(source):
    """Open the tokenizer at a path, or of a hub model, in any of the forms above.

    CheckpointError when there is none or it cannot be read. Settings that would pad, truncate or randomize
    (BPE dropout) are reset.
    """
    path = Path(source)
    if path.is_dir():
        tokenizer = _from_folder(path)
    elif path.is_file():
        tokenizer = _from_gguf(path) if path.suffix == ".gguf" else _from_json(path)
    elif HUB_NAME.fullmatch(str(source)) and path.suffix not in FILE_SUFFIXES:
        note(f"{source} is no file or folder here: asking the Hugging Face hub for a tokenizer of that name")
        tokenizer = _from_transformers(str(source), str(source))
    else:
        raise CheckpointError(f"loading tokenizer {source}: there is no such file or folder")
    tokenizer.backend.no_padding()
    tokenizer.backend.no_truncation()
    if isinstance(tokenizer.backend.model, tokenizers.models.BPE):
        tokenizer.backend.model.dropout = None
    return tokenizer


def read_backend(path):
    """The `tokenizers` object of a tokenizer.json; CheckpointError if the file is none."""
    try:
        return tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises nothing narrower
        raise CheckpointError(f"loading tokenizer {path}: it is not a tokenizer.json ({error})") from error


def _from_folder(path):
    if (path / "tokenizer.json").is_file():
        return _from_json(path / "tokenizer.json")
    is_hugging_face = any((path / name).is_file() for name in HUGGING_FACE_FILES)
    for vocab, merges in GPT2_PAIRS:
        if not is_hugging_face and (path / vocab).is_file() and (path / merges).is_file():
            return _from_gpt2_pair(path / vocab, path / merges)
    if is_hugging_face:
        return _from_transformers(path.resolve().name, str(path))
    pairs = " or ".join(f"{vocab} + {merges}" for vocab, merges in GPT2_PAIRS)
    raise CheckpointError(f"loading tokenizer {path}: the folder has no tokenizer.json and no {pairs}")


def _from_json(path):
    """A tokenizer.json, with the BOS and EOS that the Hugging Face files beside it name."""
    backend = read_backend(path)
    beside = _hugging_face_settings(path.parent) if path.name == "tokenizer.json" else {}
    bos_id, eos_id = (_special_id(backend, beside, role) for role in ("bos", "eos"))
    if eos_id is None:
        special = {
            added.content: i for i, added in backend.get_added_tokens_decoder().items() if added.special
        }
        eos_id = next((special[token] for token in END_OF_TEXT if token in special), None)
    name = path.resolve().parent.name if path.name == "tokenizer.json" else path.name
    return Tokenizer(name, backend, bos_id, eos_id)


def _hugging_face_settings(folder):
    settings = {}
    for path in (folder / name for name in reversed(HUGGING_FACE_FILES)):
        if path.is_file():
            try:
                settings.update(json.loads(path.read_text(encoding="utf-8")))
            except ValueError as error:
                raise CheckpointError(
                    f"loading tokenizer {folder}: {path.name} is not JSON ({error})"
                ) from None
    return settings


def _special_id(backend, settings, role):
    """The id that Hugging Face settings give to "bos" or "eos": by token text, else by a model's config."""
    token = settings.get(f"{role}_token")
    if isinstance(token, dict):
        token = token.get("content")
    if token is not None:
        return backend.token_to_id(token)
    found = settings.get(f"{role}_token_id")
    return found[0] if isinstance(found, list) else found


def _from_gpt2_pair(vocab, merges):
    try:
        model = tokenizers.models.BPE.from_file(str(vocab), str(merges))
    except Exception as error:  # tokenizers raises nothing narrower
        raise CheckpointError(f"loading tokenizer {vocab} and {merges.name}: {error}") from error
    backend = tokenizers.Tokenizer(model)
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    end_id = backend.token_to_id("<|endoftext|>")
    if end_id is not None:
        backend.add_special_tokens([tokenizers.AddedToken("<|endoftext|>", special=True, normalized=False)])
    return Tokenizer(vocab.resolve().parent.name, backend, end_id, end_id)


def _from_gguf(path):
    if importlib.util.find_spec("gguf") is None:
        raise CheckpointError(
            f"loading tokenizer {path}: reading GGUF needs the package gguf: pip install 'recallgap[gguf]'"
        )
    return _from_transformers(path.name, str(path.parent), gguf_file=path.name)


def _from_transformers(name, source, gguf_file=None):
    from transformers import AutoTokenizer

    options = {} if gguf_file is None else {"gguf_file": gguf_file}
    try:
        loaded = AutoTokenizer.from_pretrained(source, **options)
    except Exception as error:  # its loaders raise OSError, ValueError, ImportError, KeyError and more
        raise CheckpointError(f"loading tokenizer {name}: transformers cannot read it ({error})") from error
    if not getattr(loaded, "is_fast", False):
        raise CheckpointError(
            f"loading tokenizer {name}: it has no tokenizer.json form that gives all ids fast"
        )
    return Tokenizer(name, loaded.backend_tokenizer, loaded.bos_token_id, loaded.eos_token_id)
