"""The configuration of a recallgap language model: one entry a layer, so that a hybrid is a value."""

import difflib
import inspect
from dataclasses import asdict

from transformers import PretrainedConfig

from recallgap.errors import ConfigError
from recallgap.models.mixer import options_of
from recallgap.models.mixers import MIXERS
from recallgap.models.state_mixers import STATE_MIXERS
from recallgap.registry import pick

NORMS = {"rmsnorm": "scale only", "layernorm": "mean, scale and bias"}


class RecallGapConfig(PretrainedConfig):
    """Width, layers and head of a `RecallGapForCausalLM`.

    layers: one entry a layer, a mixer's name or {"mixer": name, option: value, ...}; an entry may hold
    "state_mixer" (name or {"name": name, option: value}) where it differs from the model's. The config holds
    them in full, with every option.
    embed_norm: a norm right after the embedding, which then starts tiny (RWKV-4, RWKV-v4/src/model.py).

    >>> attention = {"mixer": "attention", "n_heads": 2}
    >>> config = RecallGapConfig(vocab_size=64, d_model=8, layers=["base_conv", attention])
    >>> [layer["mixer"] for layer in config.layers]
    ['base_conv', 'attention']
    """

    model_type = "recallgap"

    def __init__(
        self,
        vocab_size=50257,
        d_model=768,
        layers=("attention",) * 12,
        state_mixer="swiglu",
        norm="rmsnorm",
        norm_eps=1e-5,
        embed_norm=False,
        context_len=2048,
        tie_word_embeddings=True,
        dropout=0.0,
        **kwargs,
    ):
        _refuse_misspelt(kwargs)
        for name, size in (("vocab_size", vocab_size), ("d_model", d_model), ("context_len", context_len)):
            if not isinstance(size, int) or size < 1:
                raise ConfigError(f"{name} is {size!r}, but a whole number from 1 is needed")
        pick("norm", NORMS, norm)
        if isinstance(layers, str) or not layers:
            raise ConfigError(f"layers is {layers!r}, but a list with one entry a layer is needed")
        if not 0 <= dropout < 1:
            raise ConfigError(f"dropout is {dropout}, but a probability in [0, 1) is needed")
        self.vocab_size = vocab_size
        self.d_model = d_model
        self.layers = [_entry(layer, state_mixer) for layer in layers]
        self.state_mixer = state_mixer
        self.norm = norm
        self.norm_eps = norm_eps
        self.embed_norm = embed_norm
        self.context_len = context_len
        self.dropout = dropout
        kwargs.setdefault("use_cache", False)
        super().__init__(tie_word_embeddings=tie_word_embeddings, **kwargs)

    @property
    def max_position_embeddings(self):
        """The longest context, by the name that other tools look for."""
        return self.context_len

    @property
    def hidden_size(self):
        """The width, by the name that other tools look for."""
        return self.d_model

    @property
    def num_hidden_layers(self):
        return len(self.layers)


def _refuse_misspelt(kwargs):
    """transformers takes any further name, so that a misspelt one of ours would count for nothing."""
    ours = [
        name
        for name in inspect.signature(RecallGapConfig.__init__).parameters
        if name not in ("self", "kwargs")
    ]
    for name in kwargs:
        near = difflib.get_close_matches(name, ours, n=1, cutoff=0.8)
        if near:
            raise ConfigError(f"unknown entry '{name}' of a model's config. Did you mean '{near[0]}'?")


def _entry(layer, state_mixer):
    """One layer in full: every option of its mixer and state mixer, so that a saved model keeps its meaning
    when a default changes."""
    entry = {"mixer": layer} if isinstance(layer, str) else dict(layer)
    if "mixer" not in entry:
        raise ConfigError(f"a layer is {entry}, but it must name its mixer: {{'mixer': 'attention', ...}}")
    mixer = entry["mixer"]
    name, given = split(entry.get("state_mixer", state_mixer))
    options = options_of(mixer, pick("mixer", MIXERS, mixer), mixer_options(entry))
    state_options = options_of(name, pick("state mixer", STATE_MIXERS, name), given)
    return {"mixer": mixer, **asdict(options), "state_mixer": {"name": name, **asdict(state_options)}}


def mixer_options(entry):
    """The options of the mixer among a layer's entries."""
    return {key: value for key, value in entry.items() if key not in ("mixer", "state_mixer")}


def split(state_mixer):
    """(name, options) of a state mixer given as a name or as {"name": name, option: value}."""
    if isinstance(state_mixer, str):
        return state_mixer, {}
    if "name" not in state_mixer:
        raise ConfigError(f"a state mixer is {state_mixer}, but it must be named: {{'name': 'swiglu', ...}}")
    return state_mixer["name"], {key: value for key, value in state_mixer.items() if key != "name"}
