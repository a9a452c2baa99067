"""The shapes of the checkpoints that recallgap ships, small enough to be pretrained on two CPU cores.

Four layers of width 192, a vocabulary of 4096, SwiGLU of 512, RMSNorm, a tied head and contexts of 512
tokens: all alike but the sequence mixer, so that what differs between two checkpoints is the mixer. 2.3 to
3.1 million parameters. RWKV-4 keeps its own channel mix, norms, embedding norm and head (3.5 million),
without which it is not RWKV-4. A hybrid has one layer of attention, the third.
"""

from recallgap.models.config import RecallGapConfig
from recallgap.models.mixers.hyena import PILE

SIZE = "3m"
N_LAYERS, D_MODEL, VOCAB_SIZE, D_INNER, N_HEADS = 4, 192, 4096, 512, 3
HYBRID_LAYER = 2
SELECTED_SHARE = 8
"""A learned selection attends to one of so many rows (the paper: 256 of 2048)."""

ATTENTION = {"mixer": "attention", "n_heads": N_HEADS, "qk_norm": True}
SHORT, LONG = {"mixer": "base_conv", "kernel_len": 3}, {"mixer": "base_conv", "kernel_len": None}
HEADED = {"n_heads": N_HEADS}


def _hybrid(selection):
    def layers(context_len):
        entry = {"mixer": "selective_attention", "selection": selection, "qk_norm": True, **HEADED}
        if selection == "learned":
            entry["k"] = max(context_len // SELECTED_SHARE, 1)
        found = [SHORT, LONG] * (N_LAYERS // 2)
        found[HYBRID_LAYER] = entry
        return found

    return layers


def _alike(entry):
    return lambda _: N_LAYERS * [entry]


LAYERS = {
    "attention": _alike(ATTENTION),
    "base-conv": lambda _: [SHORT, LONG] * (N_LAYERS // 2),
    "base-conv-programmatic": _hybrid("programmatic"),
    "hyena": _alike({"mixer": "hyena", **PILE}),
    "rwkv": _alike("rwkv"),
    "base-conv-full": _hybrid("full"),
    "h3": _alike("h3"),
    "retnet": _alike({"mixer": "retnet", **HEADED}),
    "long-conv": _alike("long_conv"),
    "base-conv-learned": _hybrid("learned"),
    "base-conv-random": _hybrid("random"),
    "gated-delta-net": _alike({"mixer": "gated_delta_net", **HEADED}),
    "mamba2": _alike("mamba2"),
}
RWKV_ENTRIES = {
    "state_mixer": "rwkv_channel_mix",
    "norm": "layernorm",
    "embed_norm": True,
    "tie_word_embeddings": False,
}


def _recipe(family):
    def recipe(context_len=512):
        return RecallGapConfig(
            vocab_size=VOCAB_SIZE,
            d_model=D_MODEL,
            layers=LAYERS[family](context_len),
            context_len=context_len,
            **(RWKV_ENTRIES if family == "rwkv" else {"state_mixer": {"name": "swiglu", "d_inner": D_INNER}}),
        )

    recipe.__doc__ = f"{family}, small: {N_LAYERS} layers of {D_MODEL}, {VOCAB_SIZE} tokens"
    return recipe


SMALL_RECIPES = {f"{family}-{SIZE}": _recipe(family) for family in LAYERS}
"""Name -> function of context_len that returns the `RecallGapConfig`."""
