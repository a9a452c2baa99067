"""Attention against its equations and transformers' Llama; initialisation, rotary positions, refusals."""

import pytest
import torch
from attention_cases import EXACT, assert_normal, assert_same, attention_by_rows, turned
from mixer_cases import build_mixer, random_input, run, shaken
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaRotaryEmbedding

from recallgap.errors import ConfigError
from recallgap.models.rotary import rotate

OPTIONS = (
    {"n_heads": 1},
    {"n_heads": 4},
    {"n_heads": 4, "n_kv_heads": 2, "rotary_base": 50.0},
    {"n_heads": 4, "n_kv_heads": 1, "qk_norm": True},
)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("T", [1, 2, 9])
def test_equals_its_equation_in_values_and_gradients(options, T):
    mixer = shaken(build_mixer("attention", options))
    x_BTD, context = random_input(T=T)
    x_BTD.requires_grad_()
    assert_same(
        mixer,
        x_BTD,
        lambda: run(mixer, x_BTD, context),
        lambda: attention_by_rows(mixer.heads, x_BTD, lambda t: range(t + 1)),
    )


@pytest.mark.parametrize("n_kv_heads", [4, 2, 1])
def test_equals_llama_with_the_same_weights(n_kv_heads):
    config = LlamaConfig(
        hidden_size=32,
        num_attention_heads=4,
        num_key_value_heads=n_kv_heads,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0},
        attn_implementation="eager",
    )
    llama = LlamaAttention(config, layer_idx=0).double()
    rotary = LlamaRotaryEmbedding(config)
    options = {"n_heads": 4, "n_kv_heads": n_kv_heads, "rotary_base": 500.0}
    mixer = shaken(build_mixer("attention", options, d_model=32))
    for name in ("query", "key", "value", "out"):
        theirs = getattr(llama, {"out": "o_proj"}.get(name, f"{name[0]}_proj"))
        theirs.weight.data.copy_(getattr(mixer.heads, name).weight)
    x_BTD, context = random_input(T=50, d_model=32)
    future = torch.full((50, 50), -torch.inf, dtype=torch.float64).triu(1).expand(2, 1, -1, -1)
    table = rotary(x_BTD, torch.arange(50).unsqueeze(0))
    expected, _ = llama(x_BTD, table, attention_mask=future)
    half_table = 1e-6  # Llama computes its table of angles in float32
    torch.testing.assert_close(run(mixer, x_BTD, context), expected, atol=half_table, rtol=half_table)


def test_rotation_is_a_complex_product_and_scores_depend_on_distance_alone():
    x_BHTE = torch.randn(2, 3, 7, 6, dtype=torch.float64)
    found = rotate(x_BHTE, 100.0, first=4)
    for t in range(7):
        expected = turned(x_BHTE[1, 2, t], t + 4, 100.0)
        torch.testing.assert_close(found[1, 2, t], expected, atol=EXACT, rtol=EXACT)
    near, far = (rotate(x_BHTE, 100.0, first=n) for n in (0, 1000))
    torch.testing.assert_close(near @ near.mT, far @ far.mT, atol=EXACT, rtol=EXACT)


def test_rotation_takes_the_position_of_each_row():
    x_BHTE = torch.randn(2, 3, 9, 6, dtype=torch.float64)
    rows_BS = torch.tensor([[0, 3, 8], [1, 2, 4]])
    picked = torch.stack([x[:, rows] for x, rows in zip(x_BHTE, rows_BS, strict=True)])
    whole = rotate(x_BHTE, 100.0)
    expected = torch.stack([y[:, rows] for y, rows in zip(whole, rows_BS, strict=True)])
    torch.testing.assert_close(rotate(picked, 100.0, positions_BT=rows_BS), expected, atol=EXACT, rtol=EXACT)


@pytest.mark.parametrize("name", ["attention", "selective_attention", "sliding_attention"])
def test_initialisation_is_that_of_gpt_2(name):
    """Section 2.3: N(0, 0.02), divided by sqrt(2 layers) into the residual stream. Llama's, too, is 0.02."""
    heads = build_mixer(name, {"n_heads": 4, "n_kv_heads": 2, "qk_norm": True}, d_model=256, n_layers=8).heads
    for linear in (heads.query, heads.key, heads.value):
        assert_normal(linear.weight, 0.02)
        assert linear.bias is None
    assert_normal(heads.out.weight, 0.02 / 4)
    assert (heads.query_norm.weight == 1).all()
    assert (heads.key_norm.weight == 1).all()
    assert heads.key.weight.shape == heads.value.weight.shape == (128, 256)


@pytest.mark.parametrize("name", ["attention", "selective_attention", "sliding_attention"])
@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"n_heads": 3}, "3 heads do not divide a width of 16"),
        ({"n_heads": 0}, "0 heads do not divide a width of 16"),
        ({"n_heads": 4, "n_kv_heads": 3}, "3 key-value heads do not divide 4 heads"),
        ({"n_heads": 4, "n_kv_heads": 0}, "0 key-value heads do not divide 4 heads"),
        ({"n_heads": 16}, "16 heads of a width of 16 are 1 wide, but rotary positions turn pairs"),
        ({"n_head": 4}, "unknown option of .*'n_head'. Did you mean 'n_heads'?"),
    ],
)
def test_heads_that_cannot_be_are_refused(name, options, text):
    with pytest.raises(ConfigError, match=text):
        build_mixer(name, options)
