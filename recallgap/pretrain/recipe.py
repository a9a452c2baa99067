"""From a recipe's name and settings to the model's config and the `PretrainConfig`."""

import json
from pathlib import Path

from recallgap.errors import ConfigError
from recallgap.models import RecallGapConfig
from recallgap.models.recipes import RECIPES
from recallgap.pretrain.config import PretrainConfig, config_types, parsed_settings
from recallgap.registry import pick

MODEL_SETTINGS = {"vocab_size": int, "d_model": int, "dropout": float, "tie_word_embeddings": bool}
"""What `--set` may change of a recipe's model; a config.json can say anything."""


def resolved(recipe, settings=()):
    """(RecallGapConfig, PretrainConfig) of a recipe and "name=value" settings.

    recipe: a name of RECIPES, or the path of a config.json (or a folder with one) of a recallgap model.
    ConfigError for an unknown recipe or setting, with the nearest name.
    """
    values = parsed_settings(settings, {**config_types(), **MODEL_SETTINGS})
    of_model = {name: values.pop(name) for name in MODEL_SETTINGS if name in values}
    config = PretrainConfig(**values)
    return _model_config(recipe, config.context_len, of_model), config


def _model_config(recipe, context_len, changes):
    path = Path(recipe)
    if path.is_dir():
        path = path / "config.json"
    found = _read(path) if path.suffix == ".json" else pick("recipe", RECIPES, recipe)(context_len).to_dict()
    return RecallGapConfig.from_dict({**found, **changes, "context_len": context_len})


def _read(path):
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"reading recipe {path}: it is no config.json that can be read ({error})") from None
    if not isinstance(found, dict) or found.get("model_type") != RecallGapConfig.model_type:
        raise ConfigError(
            f"reading recipe {path}: it is not the config of a recallgap model; write one with "
            "RecallGapConfig(...).save_pretrained(FOLDER), or name a recipe (recallgap list recipes)"
        )
    return found
