"""Order, schedule, parameter groups and settings of a pretraining, each against its definition."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recallgap.errors import ConfigError
from recallgap.models import RecallGapForCausalLM
from recallgap.models.groups import parameter_groups
from recallgap.models.mixers import MIXERS
from recallgap.models.recipes import RECIPES
from recallgap.pretrain import PretrainConfig, resolved
from recallgap.pretrain.order import DataOrder, PackedContexts, Positions, as_batch, documents_of
from recallgap.pretrain.schedule import learning_rate_share
from recallgap.pretrain.steps import Steps
from tests.mixer_cases import CASES
from tests.pretrain_cases import corpus, model_config


@given(st.integers(1, 9), st.integers(0, 3), st.integers(0, 40), st.integers(0, 20))
def test_every_epoch_shows_every_context_once(C, seed, start, length):
    order = DataOrder(C, seed)
    whole = order.contexts(0, 5 * C).reshape(5, C)
    assert (np.sort(whole, axis=1) == np.arange(C)).all()
    everything = DataOrder(C, seed).contexts(0, 61)
    assert order.contexts(start, start + length).tolist() == everything[start : start + length].tolist()
    assert list(Positions(order, 61)) == everything.tolist()


def test_the_order_depends_on_seed_and_epoch_alone():
    first, again, other = (DataOrder(100, seed).contexts(0, 200).tolist() for seed in (0, 0, 1))
    assert first == again != other
    assert first[:100] != first[100:] != list(range(100))


def test_contexts_are_the_stream_cut(tmp_path):
    opened = corpus(tmp_path / "train")
    dataset = PackedContexts(opened, 16)
    assert len(dataset) == opened.n_tokens // 16
    stream = np.concatenate([dataset[i] for i in range(len(dataset))])
    assert stream.tolist() == opened.ids(0, 16 * len(dataset)).tolist()
    batch = as_batch([dataset[2], dataset[0]])
    assert (
        batch["input_ids"].tolist() == batch["labels"].tolist() == [dataset[2].tolist(), dataset[0].tolist()]
    )


def test_documents_of_contexts(tmp_path):
    opened = corpus(tmp_path / "train")
    bounds = opened.document_bounds_N1
    literal = {d for c in (0, 7) for t in range(16 * c, 16 * c + 16) for d in [int((bounds <= t).sum()) - 1]}
    assert documents_of(opened, [7, 0], 16) == sorted(literal)


def test_a_cosine_rises_over_the_warm_up_and_ends_where_it_is_told():
    config = PretrainConfig(warmup=0.1, final_learning_rate=0.2)
    shares = [learning_rate_share(step, 100, config) for step in range(100)]
    assert shares[:10] == [pytest.approx((i + 1) / 10) for i in range(10)]
    assert shares[10] == 1.0
    assert shares[99] == pytest.approx(0.2)
    middle = 0.2 + 0.8 * 0.5 * (1 + math.cos(math.pi * 40 / 89))
    assert shares[50] == pytest.approx(middle)
    assert shares[10:] == sorted(shares[10:], reverse=True)


def test_wsd_stays_and_then_falls_in_a_straight_line():
    config = PretrainConfig(schedule="wsd", warmup=0.0, decay=0.25, final_learning_rate=0.0)
    shares = [learning_rate_share(step, 101, config) for step in range(101)]
    assert shares[:75] == [1.0] * 75
    assert shares[-1] == pytest.approx(0.0)
    falls = np.diff(shares[77:])
    assert np.allclose(falls, falls[0])


def test_one_step_is_a_schedule_too():
    assert learning_rate_share(0, 1, PretrainConfig(warmup=0.0)) == 1.0


@pytest.mark.parametrize("name", MIXERS)
def test_every_parameter_of_every_mixer_is_in_one_group(name):
    layers = [{"mixer": name, **options} for options in CASES[name]]
    model = RecallGapForCausalLM(model_config(layers, d_model=16))
    groups = parameter_groups(model, 0.5, 0.25)
    named = [name for group in groups for name in group["names"]]
    assert sorted(named) == sorted(name for name, _ in model.named_parameters())
    treated = {name: (g["lr"], g["weight_decay"]) for g in groups for name in g["names"]}
    assert treated["embed.weight"] == (0.5, 0.25)
    assert all(treated[name][1] == 0 for name, p in model.named_parameters() if p.dim() < 2)
    assert treated["blocks.0.state_mixer.out.weight"] == (0.5, 0.25)


def test_rules_of_mixers_bound_and_scale_the_learning_rate():
    model = RecallGapForCausalLM(model_config(["h3", "long_conv", "base_conv"], d_model=16))
    groups = parameter_groups(model, 0.5, 0.25)
    treated = {name: (g["lr"], g["weight_decay"]) for g in groups for name in g["names"]}
    kernel = next(name for name in treated if name.startswith("blocks.1.mixer.kernel"))
    assert treated[kernel] == (1e-3, 0.0)
    assert any(treated[name] == (1e-3, 0.0) for name in treated if name.startswith("blocks.0.mixer"))
    assert treated["blocks.2.mixer.taps_DK"] == (0.5, 0.0)
    assert treated["blocks.2.mixer.gate.weight"] == (0.5, 0.25)


def test_steps_follow_from_tokens():
    steps = Steps(PretrainConfig(context_len=16, batch_size=4, tokens=1000, evaluations=3), 10)
    assert (steps.n_steps, steps.tokens, steps.epochs) == (15, 960, 6.0)
    assert [s for s in range(1, 16) if steps.evaluates(s)] == [5, 10, 15]
    assert all(steps.logs(s) for s in range(1, 16))
    assert Steps(PretrainConfig(context_len=16, batch_size=4), 10).n_steps == 2
    long = Steps(PretrainConfig(context_len=16, batch_size=1, tokens=16 * 5003), 10)
    assert [s for s in range(1, 5004) if long.logs(s)][-2:] == [5000, 5003]


def test_settings_change_model_and_training():
    model, config = resolved("attention-3m", ["tokens=3e6", "dropout=0.25", "context_len=128"])
    assert (config.tokens, config.context_len, model.dropout, model.context_len) == (
        3_000_000,
        128,
        0.25,
        128,
    )
    assert resolved("attention-3m", ["eval_tokens=none", "seen_counts=true"])[1].seen_counts


def test_a_saved_config_is_a_recipe(tmp_path):
    model_config().save_pretrained(tmp_path / "mine")
    for source in (tmp_path / "mine", tmp_path / "mine" / "config.json"):
        model, config = resolved(str(source), ["context_len=32"])
        assert (model.d_model, model.context_len, config.context_len) == (8, 32, 32)
        assert model.layers == model_config().layers


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["learning_rat=1"], "unknown setting 'learning_rat'. Did you mean 'learning_rate'"),
        (["tokens"], "--set tokens: write it as name=value"),
        (["tokens=many"], "--set tokens=many: a whole number is needed"),
        (["tokens=1.5"], "a whole number is needed"),
        (["seen_counts=yes"], "true or false is needed"),
        (["seed=1", "seed=2"], "--set seed is given twice"),
        (["schedule=linear"], "unknown schedule 'linear'"),
        (["precision=fp16"], "unknown precision 'fp16'. Did you mean 'bf16'"),
        (["tokens=0"], "tokens is 0, but at least 1 is needed"),
        (["context_len=1"], "context_len is 1, but at least 2 is needed"),
        (["learning_rate=-1"], "a positive number is needed"),
        (["learning_rate=nan"], "a positive number is needed"),
        (["learning_rate=inf"], "a positive number is needed"),
        (["learning_rate=none"], "--set learning_rate=none: a number is needed"),
        (["tokens=inf"], "a whole number is needed"),
        (["tokens=nan"], "a whole number is needed"),
        (["seed=1e30"], "a whole number below 4294967296 is needed"),
        (["beta2=1"], "from 0 and below 1 is needed"),
        (["dropout=x"], "--set dropout=x: a number is needed"),
        (["warmup=2"], "a share from 0 to 1 is needed"),
        (["weight_decay=-1"], "cannot be negative"),
        (["schedule=wsd", "warmup=0.6", "decay=0.6"], "together exceed the whole run"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message.replace("(", r"\(")):
        resolved("attention-3m", settings)


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ("atention-3m", "unknown recipe 'atention-3m'. Did you mean 'attention-3m'"),
        ("no.json", "reading recipe"),
    ],
)
def test_recipes_that_are_none_are_refused(recipe, message):
    with pytest.raises(ConfigError, match=message):
        resolved(recipe)


def test_another_models_config_is_refused(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(ConfigError, match="not the config of a recallgap model"):
        resolved(str(tmp_path))


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"foo": 3}, "unknown entry of .*config.json 'foo'"),
        ({"layers": [3]}, "reading recipe"),
        ({"dropout": "x"}, "reading recipe .*: an entry has a value of the wrong type"),
        ({"layers": [{"mixer": "attention", "n_heads": "a"}]}, "reading recipe"),
    ],
)
def test_a_damaged_config_is_one_clear_error(tmp_path, entry, message):
    model_config().save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **entry}))
    with pytest.raises(ConfigError, match=message):
        resolved(str(tmp_path))


def test_every_recipe_resolves():
    assert all(resolved(name, ["context_len=64"])[0].context_len == 64 for name in RECIPES)
