"""The models that are trained on MQAR: one mixer in every layer, with the options of the authors' runs.

Options as in zoology's experiments (tag iclr24): one attention head, BaseConv filters of 3 taps and of the
context's length in turn, H3 with a state as large as the context and heads of 2. Ours: RetNet with one head
too; windows, blocks and numbers of autocorrelation lags of a quarter of the context (as many lags as there
are pairs, which may each have a distance of its own, would do if the choice of lags never missed). Ours
attend with rotary positions, theirs with learned ones.
Legend: L layers.
"""

from collections.abc import Callable
from dataclasses import dataclass

from recallgap.registry import pick

LOCAL_SHARE = 4
"""A window, a block or the chosen lags are one of so many of the context's tokens."""


@dataclass(frozen=True)
class Model:
    """How a model of the sweeps is built."""

    layers: Callable
    """(L, MqarConfig) -> its layers, as `RecallGapConfig` takes them."""
    attends: bool = False
    """It has the layers of attention (the released code gives attention fewer)."""


def _alike(mixer, **options):
    return lambda L, task: L * [{"mixer": mixer, **options}]  # noqa: ARG005


def _base_conv(L, task):  # noqa: ARG001
    short = {"mixer": "base_conv", "kernel_len": 3}
    long = {"mixer": "base_conv", "kernel_len": None, "implicit": True}
    return [(short, long)[layer % 2] for layer in range(L)]


def _h3(L, task):
    return L * [{"mixer": "h3", "d_state": task.context_len + task.context_len % 2, "head_dim": 2}]


def _local_size(task):
    return max(task.context_len // LOCAL_SHARE, 1)


def _local(mixer):
    def layers(L, task):
        return L * [{"mixer": mixer, "n_heads": 1, "window": _local_size(task)}]

    return layers


def _autocorr_conv(L, task):
    return L * [{"mixer": "autocorr_conv", "n_lags": _local_size(task)}]


MODELS = {
    "attention": Model(_alike("attention", n_heads=1), attends=True),
    "base_conv": Model(_base_conv),
    "hyena": Model(_alike("hyena")),
    "h3": Model(_h3),
    "rwkv": Model(_alike("rwkv")),
    "retnet": Model(_alike("retnet", n_heads=1)),
    "autocorr_conv": Model(_autocorr_conv),
    "sliding_attention": Model(_local("sliding_attention"), attends=True),
    "block_attention": Model(_local("block_attention"), attends=True),
}
"""Name -> how it is built; the order of tables and figures."""


def model_config(point, training):
    """The `RecallGapConfig` of a point of a sweep; ConfigError where its width does not fit its mixer."""
    from recallgap.models.config import RecallGapConfig

    model = pick("model", MODELS, point.model)
    L = training.n_attention_layers if model.attends else training.n_layers
    return RecallGapConfig(
        vocab_size=point.task.vocab_size,
        d_model=point.width,
        layers=model.layers(L, point.task),
        state_mixer=training.state_mixer,
        norm="layernorm",
        embed_norm=training.embed_norm,
        tie_word_embeddings=not training.embed_norm,
        context_len=point.task.context_len,
        dropout=training.embed_dropout,
    )
