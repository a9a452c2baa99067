"""From a recipe's name and settings to the model's config and the `PretrainConfig`."""

import inspect
import json
from pathlib import Path

import torch

from recallgap.errors import ConfigError
from recallgap.models import RecallGapConfig, RecallGapForCausalLM
from recallgap.models.recipes import RECIPES
from recallgap.pretrain.config import PretrainConfig, config_types, parsed_settings
from recallgap.registry import pick

MODEL_SETTINGS = {"vocab_size": int, "d_model": int, "dropout": float, "tie_word_embeddings": bool}
"""What `--set` may change of a recipe's model; a config.json can say anything."""


FOREIGN = ("dtype", "torch_dtype", "auto_map", "use_cache", "_name_or_path")
"""Entries that transformers adds to a saved config at times."""


def resolved(recipe, settings=()):
    """(RecallGapConfig, PretrainConfig) of a recipe and "name=value" settings.

    recipe: a name of RECIPES, or the path of a config.json (or a folder with one) of a recallgap model.
    ConfigError for an unknown recipe or setting, with the nearest name.
    """
    values = parsed_settings(settings, {**config_types(), **MODEL_SETTINGS})
    of_model = {name: values.pop(name) for name in MODEL_SETTINGS if name in values}
    config = PretrainConfig(**values)
    return model_config_of(recipe, config.context_len, of_model), config


def model_config_of(recipe, context_len, changes=()):
    """The `RecallGapConfig` of a recipe's name or config.json for contexts of this length; ConfigError where
    no model can be built of it."""
    path = Path(recipe)
    if path.is_dir():
        path = path / "config.json"
    is_file = path.suffix == ".json" or path.exists() or "/" in str(recipe)
    found = _read(path) if is_file else pick("recipe", RECIPES, recipe)(context_len).to_dict()
    try:
        config = RecallGapConfig.from_dict({**found, **dict(changes), "context_len": context_len})
        with torch.device("meta"):
            RecallGapForCausalLM(config)
        return config
    except ConfigError as error:
        if is_file:
            raise ConfigError(f"reading recipe {recipe}: {error}") from error
        raise
    except (TypeError, ValueError, AttributeError) as error:
        raise ConfigError(
            f"reading recipe {recipe}: an entry has a value of the wrong type ({error})"
        ) from error


def _read(path):
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"reading recipe {path}: it is no config.json that can be read ({error}); names of recipes: "
            "recallgap list recipes"
        ) from None
    if not isinstance(found, dict) or found.get("model_type") != RecallGapConfig.model_type:
        raise ConfigError(
            f"reading recipe {path}: it is not the config of a recallgap model; write one with "
            "RecallGapConfig(...).save_pretrained(FOLDER), or name a recipe (recallgap list recipes)"
        )
    known = {*inspect.signature(RecallGapConfig).parameters, *RecallGapConfig().to_dict(), *FOREIGN}
    for name in found:
        pick(f"entry of {path}", dict.fromkeys(known), name)
    return found
