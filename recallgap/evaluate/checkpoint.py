"""A causal language model, loaded and identified."""

import contextlib
import hashlib
import io
import json
from dataclasses import dataclass

from recallgap.artifact import fingerprint_of
from recallgap.errors import CheckpointError, ConfigError
from recallgap.evaluate.files import brief, find_checkpoint, identifying_config

LENGTH_ENTRIES = ("max_position_embeddings", "n_positions", "max_seq_len")
"""Names under which configs declare the longest input."""
NAMED_WEIGHTS = 3
"""How many missing or surplus weights an error names."""


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A model with what identifies it. `dataclasses.replace(checkpoint, name=...)` renames it."""

    name: str
    """What results and tables call the model."""
    model: object
    """A transformers PreTrainedModel."""
    fingerprint: str
    """sha256 (hex) over config and weights."""
    bos_id: int | None = None
    eos_id: int | None = None
    tokenizer_fingerprint: str | None = None
    """None where no tokenizer is known for it."""
    revision: str | None = None

    @classmethod
    def of(cls, model, *, name):
        """Wrap a model that is in memory, as it is now. Its tokenizer is not known."""
        ids = (_config_id(model, "bos"), _config_id(model, "eos"))
        return cls(name, model, _model_fingerprint(model), *ids)

    def load(self, *, dtype, device):
        """Itself, as it is loaded already; ConfigError where it is of another dtype or on another device."""
        found = {"dtype": self.dtype, "device": self.model.device.type}
        for name, wanted in (("dtype", dtype), ("device", device)):
            if wanted not in ("auto", found[name]):
                raise ConfigError(f"{name} is '{wanted}', but {self.name} is loaded as {found[name]}")
        return self

    @property
    def dtype(self):
        return str(self.model.dtype).removeprefix("torch.")

    @property
    def vocab_size(self):
        """Rows of the input embedding: every id below can be read."""
        return self.model.get_input_embeddings().weight.shape[0]

    @property
    def max_len(self):
        """Longest input that the config declares, in tokens; None where it declares none."""
        config = self.model.config.get_text_config()
        return next((getattr(config, n) for n in LENGTH_ENTRIES if getattr(config, n, None)), None)


def load_checkpoint(
    source, *, dtype="float32", device="auto", name=None, revision=None, trust_remote_code=False
):
    """Find and load a checkpoint: a Hugging Face folder with safetensors, a .gguf file or a hub name.

    CheckpointError where it cannot be loaded whole, is no causal language model or needs a missing package.
    """
    files = find_checkpoint(source, name=name, revision=revision, trust_remote_code=trust_remote_code)
    return files.load(dtype=dtype, device=device)


def load_files(files, *, dtype, device):
    """The `Checkpoint` of a `CheckpointFiles`: weights in `dtype` on `device`, all of them from the files."""
    import torch

    doing = f"loading checkpoint {files.name}"
    target = _resolve_device(device)
    model, report = _from_pretrained(files, getattr(torch, dtype), doing)
    for kind in ("missing", "unexpected", "mismatched"):
        keys = sorted(map(str, report[f"{kind}_keys"]))
        if keys:
            more = f" and {len(keys) - NAMED_WEIGHTS} more" if len(keys) > NAMED_WEIGHTS else ""
            raise CheckpointError(
                f"{doing}: as a {type(model).__name__} it has {kind} weights: "
                f"{', '.join(keys[:NAMED_WEIGHTS])}{more}. Config and weights do not belong together"
            )
    tokenizer = files.tokenizer
    ids = {}
    for role in ("bos", "eos"):
        known = None if tokenizer is None else getattr(tokenizer, f"{role}_id")
        ids[f"{role}_id"] = _config_id(model, role) if known is None else known
    return Checkpoint(
        name=files.name,
        model=model.to(target),
        fingerprint=files.fingerprint,
        tokenizer_fingerprint=files.tokenizer_fingerprint,
        revision=files.revision,
        **ids,
    )


@contextlib.contextmanager
def quiet_transformers():
    """Keep transformers' advice off stderr; its errors are raised all the same."""
    from transformers.utils import logging

    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)


def _from_pretrained(files, dtype, doing):
    """The model and transformers' report of what fitted; its progress bars on stderr are dropped."""
    from transformers import AutoModelForCausalLM

    import recallgap.models  # noqa: F401  (makes our own architectures known to transformers)

    try:
        with quiet_transformers(), contextlib.redirect_stderr(io.StringIO()):
            return AutoModelForCausalLM.from_pretrained(
                files.folder,
                gguf_file=files.gguf,
                dtype=dtype,
                use_safetensors=True,
                trust_remote_code=files.trust_remote_code,
                local_files_only=True,
                ignore_mismatched_sizes=True,  # they are in the report, which names them
                output_loading_info=True,
            )
    except Exception as error:  # transformers, safetensors and gguf raise all kinds
        hint = ""
        if type(error).__name__ == "SafetensorError":
            hint = ". The weights file is cut short or damaged: copy it again"
        if "trust_remote_code" in str(error):
            hint = ". If you trust the code in that folder, allow it with --trust-remote-code"
        raise CheckpointError(f"{doing}: {brief(error)}{hint}") from error


def _resolve_device(device):
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device is 'cuda', but this torch finds no GPU; use --device cpu")
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return device


def _config_id(model, role):
    found = getattr(model.config.get_text_config(), f"{role}_token_id", None)
    return found[0] if isinstance(found, list) else found


def _model_fingerprint(model):
    import torch

    config = json.loads(model.config.to_json_string(use_diff=False))
    hashes = {}
    for name, tensor in model.state_dict().items():
        content = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        hashes[name] = [list(tensor.shape), hashlib.sha256(content).hexdigest()]
    return fingerprint_of({"config": identifying_config(config), "tensors": hashes})
