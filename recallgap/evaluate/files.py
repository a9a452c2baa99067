"""A checkpoint on disk, before its weights are loaded: which files it is, and what identifies it."""

import importlib.util
import json
import re
from dataclasses import dataclass
from pathlib import Path

from recallgap.artifact import file_sha256, fingerprint_of
from recallgap.corpus.tokenizer import load_tokenizer
from recallgap.errors import CheckpointError
from recallgap.progress import note

HUB_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")
HUB_FILES = ("*.json", "model*.safetensors", "*.txt", "*.model", "*.py")
GGUF_PACKAGES = ("gguf", "accelerate")
"""What transformers reads a .gguf file with: the extra `recallgap[gguf]`."""
PICKLED = (".bin", ".pt", ".pth", ".ckpt")
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
    "vocab.txt",
    "encoder.json",
    "spiece.model",
)
UNIDENTIFYING = ("_name_or_path", "dtype", "torch_dtype", "transformers_version")
"""Config entries that may differ between two copies of one checkpoint."""


@dataclass(frozen=True)
class CheckpointFiles:
    """A checkpoint found on disk and identified; `load` gives its model."""

    name: str
    """What results and tables call the model."""
    folder: Path
    gguf: str | None
    """Name of the .gguf file in `folder`, or None for a Hugging Face folder."""
    fingerprint: str
    """sha256 (hex) over the config and the content of the weights files."""
    tokenizer: object | None
    """The corpus.tokenizer.Tokenizer that lies with it, or None where there is none."""
    revision: str | None = None
    trust_remote_code: bool = False

    @property
    def tokenizer_fingerprint(self):
        return None if self.tokenizer is None else self.tokenizer.fingerprint

    def load(self, *, dtype, device):
        """Load the weights; see `checkpoint.load_files`."""
        from recallgap.evaluate.checkpoint import load_files

        return load_files(self, dtype=dtype, device=device)


def find_checkpoint(source, *, name=None, revision=None, trust_remote_code=False):
    """Find and identify a checkpoint without loading its weights: a `CheckpointFiles`.

    source: a Hugging Face folder with safetensors, a .gguf file, or the name of a model on the hub.
    revision: of a hub model. CheckpointError where there is nothing that can be loaded.
    """
    path, doing = Path(source), f"loading checkpoint {source}"
    if path.is_file():
        _check_gguf(path, doing)
        folder, gguf, fingerprint = path.parent, path.name, file_sha256(path)
        tokenizer = load_tokenizer(path)
    else:
        folder, gguf = path if path.is_dir() else _from_hub(str(source), revision, doing), None
        fingerprint = _folder_fingerprint(folder, trust_remote_code, doing)
        has_tokenizer = any((folder / file).is_file() for file in TOKENIZER_FILES)
        tokenizer = load_tokenizer(folder) if has_tokenizer else None
    if tokenizer is None:
        note(f"{doing}: it has no tokenizer files, so whether its ids are those of the corpus is not checked")
    if name is None:
        name = path.resolve().name if path.exists() else str(source)
    return CheckpointFiles(
        name.removesuffix(".gguf"), folder, gguf, fingerprint, tokenizer, revision, trust_remote_code
    )


def identifying_config(config):
    """The entries of a model's config (a dict of JSON values) that tell checkpoints apart."""
    return {key: value for key, value in config.items() if key not in UNIDENTIFYING}


def brief(error):
    """Class and first line of an error that another library raised; the whole of it is its cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return ": ".join([type(error).__name__, *lines[:1]])


def _check_gguf(path, doing):
    if path.suffix != ".gguf":
        raise CheckpointError(f"{doing}: it is a file, but not .gguf; give the folder that holds config.json")
    with open(path, "rb") as file:
        magic = file.read(4)
    if magic != b"GGUF":
        raise CheckpointError(f"{doing}: a GGUF file starts with b'GGUF', but this one with {magic}")
    missing = [package for package in GGUF_PACKAGES if importlib.util.find_spec(package) is None]
    if missing:
        needs = " and ".join(missing)
        raise CheckpointError(f"{doing}: reading GGUF needs {needs}: pip install 'recallgap[gguf]'")


def _from_hub(source, revision, doing):
    """Folder of the local copy of a hub model, downloaded where it is not there yet."""
    if not HUB_NAME.fullmatch(source) or source.endswith((".gguf", ".safetensors")):
        raise CheckpointError(f"{doing}: there is no such file or folder")
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(source, revision=revision, allow_patterns=list(HUB_FILES)))
    except Exception as error:  # network, offline mode, unknown name, no access: a dozen classes
        raise CheckpointError(
            f"{doing}: there is no such folder here, and the model hub gave none of that name "
            f"({brief(error)}). Check the name, the network and HF_HUB_OFFLINE, "
            "or give a local folder"
        ) from error


def _folder_fingerprint(folder, trust_remote_code, doing):
    config = _read_json(folder / "config.json", doing)
    if config.get("is_encoder_decoder"):
        kind = config.get("model_type")
        raise CheckpointError(
            f"{doing}: {kind} is an encoder-decoder; only causal language models are evaluated"
        )
    files = _weight_files(folder, doing)
    if trust_remote_code:
        files += sorted(folder.glob("*.py"))
    hashes = {file.name: file_sha256(file) for file in files}
    return fingerprint_of({"config": identifying_config(config), "files": hashes})


def _read_json(path, doing):
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(
            f"{doing}: it has no {path.name}, so it is no Hugging Face model folder"
        ) from None
    except ValueError as error:
        raise CheckpointError(f"{doing}: {path.name} is not JSON ({error})") from None


def _weight_files(folder, doing):
    """The safetensors files that transformers would load from `folder`."""
    if (folder / "model.safetensors").is_file():
        return [folder / "model.safetensors"]
    if (folder / "model.safetensors.index.json").is_file():
        index = _read_json(folder / "model.safetensors.index.json", doing)
        files = [folder / file for file in sorted(set(index["weight_map"].values()))]
        missing = [file.name for file in files if not file.is_file()]
        if missing:
            raise CheckpointError(f"{doing}: its index names {', '.join(missing)}, which is not there")
        return files
    pickled = [path.name for path in sorted(folder.iterdir()) if path.suffix in PICKLED]
    if pickled:
        raise CheckpointError(
            f"{doing}: its weights are pickled ({pickled[0]}), and a pickle can run code when it is read. If "
            "you trust it, convert it once with transformers' AutoModelForCausalLM: "
            ".from_pretrained(FOLDER).save_pretrained(NEW_FOLDER), and copy the tokenizer files along"
        )
    raise CheckpointError(f"{doing}: it has no model.safetensors and no model.safetensors.index.json")
