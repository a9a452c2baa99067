"""Recipes: the paper's names and parameter counts, and what `recallgap model` says of them."""

import json

import pytest
import torch
import typer
from test_models_lm import HYBRID, build, config_of, random_ids
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from typer.testing import CliRunner

from recallgap.cli.model import model as model_command
from recallgap.errors import ConfigError
from recallgap.models import RecallGapForCausalLM
from recallgap.models.describe import describe_model
from recallgap.models.recipes import RECIPES, SIZES, TARGET_MILLIONS
from recallgap.models.small_recipes import SMALL_RECIPES

CLOSE = 0.03
"""Of the table's count: all that may be left of unknown settings."""
PURE = ("attention", "long-conv", "h3", "hyena", "rwkv", "base-conv")
SELECTIONS = ("random", "programmatic", "learned", "full")
TARGETS = [
    pytest.param(f"{family}-{size}", millions, id=f"{family}-{size}")
    for family, targets in TARGET_MILLIONS.items()
    for size, millions in zip(SIZES, targets, strict=True)
    if millions
]


def test_there_is_a_recipe_for_each_model_of_the_paper():
    pure = {f"{family}-{size}" for family in PURE for size in ("70m", "125m", "355m", "1.4b")}
    hybrids = {f"base-conv-{selection}-{size}" for selection in SELECTIONS for size in ("125m", "355m")}
    assert RECIPES.keys() == pure | hybrids | SMALL_RECIPES.keys()


@pytest.mark.parametrize(("name", "millions"), TARGETS)
def test_a_recipe_has_the_papers_number_of_parameters(name, millions):
    """No skip: a recipe whose mixer does not exist fails here."""
    found = describe_model(RECIPES[name]())["parameters"]["total"]
    assert found == pytest.approx(millions * 1e6, rel=CLOSE)


@pytest.mark.parametrize(("name", "published"), [("attention-355m", 359.8), ("rwkv-125m", 169.3)])
def test_counts_known_from_elsewhere(name, published):
    """Llama's layer at 24 x 1024 by hand, and RWKV-LM's own 169M model (50277 tokens there)."""
    assert describe_model(RECIPES[name]())["parameters"]["total"] == pytest.approx(published * 1e6, rel=1e-3)


@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize(("size", "n_layers"), [("125m", 30), ("355m", 48)])
def test_a_hybrid_is_base_conv_with_three_layers_of_attention(selection, size, n_layers):
    plain, hybrid = RECIPES[f"base-conv-{size}"](), RECIPES[f"base-conv-{selection}-{size}"]()
    assert len(hybrid.layers) == len(plain.layers) == n_layers
    changed = [i for i in range(n_layers) if hybrid.layers[i] != plain.layers[i]]
    assert len(changed) == 3
    assert all(hybrid.layers[i]["selection"] == selection for i in changed)
    assert all(plain.layers[i]["kernel_len"] is None for i in changed)
    assert plain.state_mixer == hybrid.state_mixer


def test_the_context_is_the_length_of_long_filters_and_of_the_costs():
    short, long = (describe_model(RECIPES["base-conv-70m"](context_len=T)) for T in (512, 1024))
    assert long["parameters"]["base_conv"] - short["parameters"]["base_conv"] == 13 * 512 * 512
    assert (short["context_len"], long["context_len"]) == (512, 1024)
    assert long["state_bytes"] > short["state_bytes"]
    learned = RECIPES["base-conv-learned-125m"](context_len=64)
    assert learned.layers[7]["k"] == 64, "a budget of rows within the context"


def test_a_description_counts_what_a_model_has():
    for tied in (True, False):
        config = config_of(HYBRID, tie_word_embeddings=tied)
        found, model = describe_model(config), RecallGapForCausalLM(config)
        parts = dict(found["parameters"])
        assert parts.pop("total") == sum(parts.values()) == model.num_parameters()
        assert parts["embedding"] == 50 * 16
        assert parts.get("head", 0) == (0 if tied else 50 * 16)
        assert parts["norms"] == 7 * 16
        assert parts["attention"] == 2 * 4 * 16 * 16
        assert found["state_bytes"] == 4 * (2 * 2 * 24 * 16 + 2 * 16)
        assert [layer["at"] for layer in found["layers"]] == [[0], [1], [2]]


def test_operations_of_a_description_are_those_of_a_forward():
    T = 512
    config = config_of(HYBRID, context_len=T, d_model=64)
    model = build(HYBRID, context_len=T, d_model=64)
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as count:
        model(random_ids(B=1, T=T))
    assert describe_model(config)["flops_per_token"] * T == pytest.approx(count.get_total_flops(), rel=0.02)


@pytest.fixture(scope="module")
def run_model():
    app = typer.Typer()
    app.command()(model_command)
    return lambda *arguments: CliRunner().invoke(app, arguments, catch_exceptions=False)


def test_the_command_prints_parameters_costs_and_layers(run_model):
    result = run_model("base-conv-full-125m", "--context-len", "1024")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "base-conv-full-125m: width 768, vocabulary 50,257, tied head"
    found = describe_model(RECIPES["base-conv-full-125m"](context_len=1024))
    assert f"parameters {found['parameters']['total']:,}" in lines
    assert any(line.split()[:2] == ["selective_attention", "7,077,888"] for line in lines)
    assert f"{found['state_bytes']:,} bytes" in result.stdout
    assert f"{found['flops_per_token']:,} a token" in result.stdout
    at = lines.index("layers")
    assert lines[at + 1] == "  15 x base_conv + mlp(expand=2): 0-28 by 2"
    assert lines[at + 2].startswith("  12 x base_conv(kernel_len=None) + mlp(expand=2): 1, 3, 5, 9")
    assert lines[at + 3] == "  3 x selective_attention(n_heads=12, selection=full) + mlp(expand=2): 7-23 by 8"


def test_the_command_prints_json(run_model):
    found = json.loads(run_model("attention-70m", "--json").stdout)
    assert found["recipe"] == "attention-70m"
    assert found["parameters"]["total"] == pytest.approx(73.2e6, rel=0.001)
    assert found["layers"][0]["at"] == list(range(6))
    assert found["layers"][0]["n_heads"] == 8


def test_an_unknown_recipe_is_refused_with_the_nearest_name(run_model):
    with pytest.raises(ConfigError, match=r"unknown recipe 'attention-120m'. Did you mean 'attention-125m'"):
        run_model("attention-120m")


def test_every_recipe_says_what_it_is():
    lines = {name: recipe.__doc__ for name, recipe in RECIPES.items()}
    assert lines["attention-125m"] == "attention, 125M parameters in the paper"
    assert len(set(lines.values())) > 20


@pytest.mark.parametrize("name", SMALL_RECIPES)
def test_the_shipped_shapes_differ_in_their_mixers_alone(name):
    config, attention = SMALL_RECIPES[name](), SMALL_RECIPES["attention-3m"]()
    assert 2.2e6 < describe_model(config)["parameters"]["total"] < 3.6e6
    shape = ["vocab_size", "d_model", "context_len", "num_hidden_layers"]
    if name != "rwkv-3m":  # which is not RWKV-4 without its own
        shape += ["state_mixer", "norm", "embed_norm", "tie_word_embeddings"]
    assert all(getattr(config, entry) == getattr(attention, entry) for entry in shape)


def test_a_small_hybrid_has_one_layer_of_attention_that_looks_back_over_a_short_filter():
    for selection in SELECTIONS:
        layers = SMALL_RECIPES[f"base-conv-{selection}-3m"]().layers
        plain = SMALL_RECIPES["base-conv-3m"]().layers
        assert [i for i in range(4) if layers[i] != plain[i]] == [2]
        assert layers[2]["selection"] == selection
    assert SMALL_RECIPES["base-conv-learned-3m"](context_len=64).layers[2]["k"] == 8
