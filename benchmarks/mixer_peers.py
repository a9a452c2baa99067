"""Layers of other projects that benchmarks/mixers.py measures, each called as layer(x_BTD)."""

import sys
from unittest import mock

FLA_OPTIONS = {
    "GatedLinearAttention": {"num_heads": 4},
    "MultiScaleRetention": {"num_heads": 4},
    "DeltaNet": {"num_heads": 4},
    "GatedDeltaNet": {"num_heads": 4, "head_dim": 48},
    "RWKV7Attention": {"layer_idx": 0, "num_hidden_layers": 4},
    "BasedLinearAttention": {"num_heads": 16, "num_key_value_heads": 16},
}
ZOOLOGY_FILTERS = {
    "zoology base_conv": {"kernel_size": 3},
    "zoology base_conv (long)": {"kernel_size": -1, "implicit_long_conv": False},
    "zoology base_conv (implicit)": {"kernel_size": -1},
}
PACKAGES = ("transformers", "zoology", "safari", "torch", "fla")
NOT_OF_THE_LAYER = ("pytorch_lightning", "pytorch_lightning.utilities", "omegaconf", "hydra")
"""What safari imports for logging and configuration: the layer computes nothing with it."""


def peer(case, d_model, T):
    """The layer called `case`: a package, which must be installed or on the path, and a name in it."""
    import transformers as hf

    common = {"hidden_size": d_model, "num_hidden_layers": 2}
    if case == "transformers llama":
        from transformers.models.llama.modeling_llama import LlamaAttention, LlamaRotaryEmbedding

        config = hf.LlamaConfig(**common, num_attention_heads=8, attn_implementation="sdpa")
        layer, rotary = LlamaAttention(config, 0), LlamaRotaryEmbedding(config)
        return lambda x: layer(x, rotary(x, position_ids(x)), None)[0]
    if case == "transformers rwkv":
        from transformers.models.rwkv.modeling_rwkv import RwkvSelfAttention

        layer = RwkvSelfAttention(hf.RwkvConfig(**common, context_length=T), layer_id=1)
        return lambda x: layer(x)[0]
    if case == "transformers mamba2":
        from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer

        sizes = {"num_heads": 2 * d_model // 64, "head_dim": 64, "state_size": 128, "n_groups": 1}
        return Mamba2Mixer(hf.Mamba2Config(**common, **sizes, expand=2), 0)
    if case == "transformers qwen3_next":
        from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextGatedDeltaNet

        heads = {"linear_num_value_heads": 4, "linear_num_key_heads": 4}
        sizes = {"linear_key_head_dim": 48, "linear_value_head_dim": 96}
        return Qwen3NextGatedDeltaNet(hf.Qwen3NextConfig(**common, **heads, **sizes), 0)
    if case == "transformers minimax":
        from transformers.models.minimax.modeling_minimax import MiniMaxLightningAttention

        layer = MiniMaxLightningAttention(hf.MiniMaxConfig(**common, num_attention_heads=4, head_dim=64), 1)
        return lambda x: layer(x, None, None)[0]
    if case == "torch sdpa":
        return bare_attention
    if case.startswith("fla "):
        import fla.layers

        name = case.partition(" ")[2]
        layer = getattr(fla.layers, name)(hidden_size=d_model, **FLA_OPTIONS[name])
        return lambda x: first(layer(x))
    if case == "safari long_conv":
        with mock.patch.dict(sys.modules, {name: mock.MagicMock() for name in NOT_OF_THE_LAYER}):
            from src.models.sequence.long_conv import LongConv

        layer = LongConv(d_model, l_max=T, lam=0.003, kernel_dropout=0.2, transposed=False)
        return lambda x: layer(x)[0]
    if case in ZOOLOGY_FILTERS:
        from zoology.mixers.base_conv import BaseConv

        return BaseConv(d_model, T, **ZOOLOGY_FILTERS[case])
    if case == "zoology hyena":
        from zoology.mixers.hyena import Hyena

        return Hyena(d_model, T)
    from zoology.mixers.h3.h3 import H3

    return H3(d_model, l_max=T)


def first(result):
    return result[0] if isinstance(result, tuple) else result


def bare_attention(x_BTD):
    """What attention cannot do without: 8 heads, each attending to itself."""
    from torch.nn.functional import scaled_dot_product_attention

    x_BHTE = x_BTD.unflatten(-1, (8, -1)).transpose(1, 2)
    return scaled_dot_product_attention(x_BHTE, x_BHTE, x_BHTE, is_causal=True)


def position_ids(x_BTD):
    import torch

    return torch.arange(x_BTD.shape[1]).expand(x_BTD.shape[:2])
