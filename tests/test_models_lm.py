"""The language model with every mixer: saving, generating, padding, loss, precision, bad input."""

import math

import pytest
import torch
from mixer_cases import CASES, CONTEXT_LEN, D_MODEL
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

from recallgap.errors import CheckpointError, ConfigError
from recallgap.models import RecallGapConfig, RecallGapForCausalLM
from recallgap.models.mixers import MIXERS
from recallgap.models.state_mixers import STATE_MIXERS

VOCAB_SIZE = 50
EXACT = 1e-10
"""float64, a few layers of unit-size numbers."""
HYBRID = [
    {"mixer": "attention", "n_heads": 2},
    "base_conv",
    {"mixer": "attention", "n_heads": 2, "state_mixer": "mlp"},
]
LAYERS = [
    pytest.param({"mixer": name, **options}, id=f"{name}-{i}")
    for name in MIXERS
    for i, options in enumerate(CASES[name])
]
each_layer = pytest.mark.parametrize("layer", LAYERS)


def config_of(layers, **entries):
    defaults = {"vocab_size": VOCAB_SIZE, "d_model": D_MODEL, "context_len": CONTEXT_LEN}
    return RecallGapConfig(layers=layers, **{**defaults, **entries})


def build(layers, seed=0, **entries):
    torch.manual_seed(seed)
    return RecallGapForCausalLM(config_of(layers, **entries))


def shaken(model):
    """Every weight moved off its initial value; in evaluation mode."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.1 * torch.randn(p.shape, generator=generator).to(p.dtype))
    return model.eval()


def random_ids(B=2, T=CONTEXT_LEN, vocab_size=VOCAB_SIZE, seed=2):
    return torch.randint(0, vocab_size, (B, T), generator=torch.Generator().manual_seed(seed))


# Saving and loading


@each_layer
@pytest.mark.parametrize("tied", [True, False])
def test_a_saved_model_comes_back_bit_for_bit(layer, tied, tmp_path):
    model = shaken(build([layer, layer], tie_word_embeddings=tied))
    model.save_pretrained(tmp_path)
    torch.manual_seed(99)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert type(loaded) is RecallGapForCausalLM
    assert loaded.config.layers == model.config.layers
    assert (loaded.head.weight is loaded.embed.weight) == tied
    before, after = model.state_dict(), loaded.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert torch.equal(loaded.eval()(random_ids()).logits, model(random_ids()).logits)
    assert ("head.weight" in load_file(tmp_path / "model.safetensors")) == (not tied)


def test_the_names_of_weights_are_stable():
    """A saved model depends on them: change them only with a migration."""
    expected = {"embed.weight", "head.weight", "norm.weight"}
    expected |= {f"blocks.0.{n}.weight" for n in ("mixer_norm", "state_mixer_norm")}
    expected |= {f"blocks.0.mixer.heads.{n}.weight" for n in ("query", "key", "value", "out")}
    expected |= {f"blocks.0.state_mixer.{n}.weight" for n in ("gate", "inner", "out")}
    assert build([{"mixer": "attention", "n_heads": 2}]).state_dict().keys() == expected


def test_a_config_comes_back_with_every_option(tmp_path):
    config = config_of(
        [*HYBRID, {"mixer": "base_conv", "state_mixer": {"name": "mlp", "expand": 2}}],
        norm="layernorm",
        norm_eps=1e-6,
        dropout=0.1,
        tie_word_embeddings=False,
        state_mixer="rwkv_channel_mix",
    )
    config.save_pretrained(tmp_path)
    loaded = AutoConfig.from_pretrained(tmp_path)
    assert type(loaded) is RecallGapConfig
    varying = {"_name_or_path": None, "transformers_version": None}
    assert {**loaded.to_dict(), **varying} == {**config.to_dict(), **varying}
    assert [layer["mixer"] for layer in loaded.layers] == ["attention", "base_conv", "attention", "base_conv"]
    assert loaded.layers[0]["rotary_base"] == 10000.0, "defaults are written down"
    names = [layer["state_mixer"]["name"] for layer in loaded.layers]
    assert names == ["rwkv_channel_mix", "rwkv_channel_mix", "mlp", "mlp"]
    assert loaded.layers[3]["state_mixer"]["expand"] == 2
    assert (loaded.num_hidden_layers, loaded.hidden_size, loaded.max_position_embeddings) == (4, 16, 24)


def drop_weight(weights):
    del weights["blocks.1.mixer.gate.weight"]


def add_weights(weights):
    weights.update({f"blocks.9.extra_{i}": torch.zeros(2) for i in range(5)})


def cut_weight(weights):
    weights["norm.weight"] = weights["norm.weight"][:8].clone()


@pytest.mark.parametrize("loader", [AutoModelForCausalLM, RecallGapForCausalLM])
@pytest.mark.parametrize(
    ("change", "text"),
    [
        (drop_weight, "it has missing weights: blocks.1.mixer.gate.weight. Config and weights do not"),
        (add_weights, r"unexpected weights: blocks.9.extra_0, blocks.9.extra_1, blocks.9.extra_2 and 2 more"),
        (cut_weight, "it has mismatched weights: norm.weight"),
    ],
)
def test_a_folder_whose_weights_do_not_fit_is_refused(change, text, loader, tmp_path):
    build(HYBRID).save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    change(weights)
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=text) as caught:
        loader.from_pretrained(tmp_path)
    assert str(tmp_path) in str(caught.value)
    model, report = loader.from_pretrained(tmp_path, output_loading_info=True, ignore_mismatched_sizes=True)
    assert any(report[f"{kind}_keys"] for kind in ("missing", "unexpected", "mismatched"))
    assert all(p.isfinite().all() for p in model.parameters())


@each_layer
def test_built_on_the_meta_device_it_is_initialised_whole(layer):
    """Memory is filled with NaN before init_weights: whatever it leaves out shows."""
    with torch.device("meta"):
        model = RecallGapForCausalLM(config_of([layer, layer]))
    assert all(p.is_meta for p in model.parameters())
    model.to_empty(device="cpu")
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            tensor.fill_(math.nan if tensor.is_floating_point() else 0)
    model.init_weights()
    assert all(tensor.isfinite().all() for tensor in (*model.parameters(), *model.buffers()))
    assert model.head.weight is model.embed.weight
    assert model.eval()(random_ids()).logits.isfinite().all()


@each_layer
def test_its_weights_start_as_each_part_starts_them(layer):
    """transformers calls the initialisation and may leave a module out."""
    model = build([layer, layer], d_model=64, vocab_size=512)
    found = {name: float(p.detach().double().std()) for name, p in model.named_parameters() if p.numel() > 60}
    for block in model.blocks:
        block.mixer.init_weights()
        block.state_mixer.init_weights()
    for name, std in found.items():
        p = model.get_parameter(name).detach().double()
        noise = 5 * (2 / p.numel()) ** 0.5
        assert std == pytest.approx(float(p.std()), rel=max(0.05, noise), abs=1e-9), name
    assert found["embed.weight"] == pytest.approx(0.02, rel=0.02)
    assert found["blocks.0.state_mixer.gate.weight"] == pytest.approx(0.02, rel=0.05)


# Generating and padding


@each_layer
def test_greedy_generation_takes_the_likeliest_token_each_time(layer):
    model = shaken(build([layer, layer]))
    ids_BT = random_ids(B=2, T=6)
    expected = ids_BT
    with torch.no_grad():
        for _ in range(5):
            latest = model(expected).logits[:, -1].argmax(-1, keepdim=True)
            expected = torch.cat([expected, latest], dim=1)
    for use_cache in (None, True):
        options = {} if use_cache is None else {"use_cache": use_cache}
        mask = torch.ones_like(ids_BT)
        found = model.generate(ids_BT, attention_mask=mask, max_new_tokens=5, do_sample=False, **options)
        assert torch.equal(found, expected)


@each_layer
def test_padding_on_either_side_changes_nothing(layer):
    model = shaken(build([layer, layer])).double()
    row_T = random_ids(B=1, T=9)
    other_T = random_ids(B=1, T=14, seed=5)
    alone = model(row_T).logits
    for left in (5, 0, 2):
        pads = torch.full((1, 5), 3)
        padded = torch.cat([pads[:, :left], row_T, pads[:, left:]], dim=1)
        mask = torch.zeros_like(padded)
        mask[:, left : left + 9] = 1
        ids_BT = torch.cat([padded, other_T])
        logits = model(ids_BT, attention_mask=torch.cat([mask, torch.ones_like(mask)])).logits
        torch.testing.assert_close(logits[:1, left : left + 9], alone, atol=EXACT, rtol=EXACT)
        torch.testing.assert_close(logits[1:], model(other_T).logits, atol=EXACT, rtol=EXACT)


def test_padding_changes_what_is_not_undone():
    """The test above can fail: without the mask, padding on the left moves the logits."""
    model = shaken(build(HYBRID)).double()
    row_T = random_ids(B=1, T=9)
    padded = torch.cat([torch.full((1, 5), 3), row_T], dim=1)
    assert (model(padded).logits[:, 5:] - model(row_T).logits).abs().max() > 1e-3


def test_left_padded_rows_generate_as_they_do_alone():
    model = shaken(build(HYBRID))
    row_T = random_ids(B=1, T=4)
    batch = torch.cat(
        [torch.cat([torch.zeros(1, 3, dtype=torch.long), row_T], 1), random_ids(B=1, T=7, seed=4)]
    )
    mask = torch.ones_like(batch)
    mask[0, :3] = 0
    found = model.generate(batch, attention_mask=mask, max_new_tokens=6, do_sample=False, pad_token_id=0)
    alone = model.generate(row_T, max_new_tokens=6, do_sample=False)
    assert torch.equal(found[0, 3:], alone[0])


@pytest.mark.parametrize(
    ("mask", "text"),
    [
        ([[1, 1, 0, 1, 1], [1, 1, 1, 1, 1]], "attention_mask has a gap inside a row"),
        ([[0, 1, 0, 1, 0], [1, 1, 1, 1, 1]], "attention_mask has a gap inside a row"),
        ([[1, 1, 0], [1, 1, 1]], r"attention_mask is \(2, 3\), but the ids are \(2, 5\)"),
    ],
)
def test_a_mask_that_cannot_be_is_refused(mask, text):
    with pytest.raises(ConfigError, match=text):
        build(HYBRID)(random_ids(T=5), attention_mask=torch.tensor(mask))


@each_layer
def test_a_row_of_padding_alone_does_no_harm(layer):
    model = shaken(build([layer, layer]))
    ids_BT = random_ids(T=5)
    mask = torch.tensor([[0, 0, 0, 0, 0], [1, 1, 1, 1, 1]])
    logits = model.train()(ids_BT, attention_mask=mask, labels=ids_BT)
    assert logits.loss.isfinite()
    assert logits.logits.isfinite().all()


def test_only_the_last_logits_are_computed_on_demand():
    model = shaken(build(HYBRID))
    whole = model(random_ids()).logits
    torch.testing.assert_close(model(random_ids(), logits_to_keep=3).logits, whole[:, -3:])
    assert isinstance(model(random_ids(), return_dict=False), tuple)


# Loss


@each_layer
def test_the_initial_loss_is_that_of_a_uniform_guess(layer):
    V = 512
    model = build([layer] * 4, d_model=64, vocab_size=V, context_len=128).eval()
    ids_BT = random_ids(B=4, T=128, vocab_size=V)
    loss = model(ids_BT, labels=ids_BT).loss
    assert float(loss.detach()) == pytest.approx(math.log(V), rel=0.01)


def test_labels_are_shifted_and_ignored_where_they_are_minus_100():
    model = shaken(build(HYBRID))
    ids_BT = random_ids()
    labels_BT = ids_BT.clone()
    labels_BT[0, :10] = -100
    log_p = model(ids_BT).logits.log_softmax(-1)
    losses = [-log_p[b, t - 1, ids_BT[b, t]] for b in range(2) for t in range(1, 24) if b or t >= 10]
    torch.testing.assert_close(model(ids_BT, labels=labels_BT).loss, torch.stack(losses).mean())


def learned(**entries):
    layer = {"mixer": "selective_attention", "n_heads": 2, "selection": "learned", "k": 2, "noise": 0.0}
    return shaken(build([layer, layer], **entries)).double()


def test_auxiliary_losses_are_added_in_training_alone():
    model, ids_BT = learned(), random_ids()
    evaluated = model(ids_BT, labels=ids_BT).loss
    trained = model.train()(ids_BT, labels=ids_BT).loss
    torch.testing.assert_close(model(ids_BT).logits, model.eval()(ids_BT).logits)
    assert trained > evaluated + 0.01


def test_accumulated_gradients_are_those_of_the_whole_batch():
    """The Trainer hands over how many labels the whole batch has; auxiliary losses scale with it."""
    model, ids_BT = learned().train(), random_ids(B=4)
    labels_BT = ids_BT.clone()
    labels_BT[0, :15] = -100
    n_labels = int((labels_BT[:, 1:] != -100).sum())
    equal_parts = (ids_BT, labels_BT), (ids_BT.flip(0), labels_BT.flip(0))
    whole = model(torch.cat([i for i, _ in equal_parts]), labels=torch.cat([y for _, y in equal_parts])).loss
    parts = [model(i, labels=y, num_items_in_batch=torch.tensor(2 * n_labels)).loss for i, y in equal_parts]
    torch.testing.assert_close(sum(parts), whole)


def test_dropout_is_off_by_default_and_in_evaluation():
    ids_BT = random_ids()
    model = build(HYBRID).train()
    assert torch.equal(model(ids_BT).logits, model(ids_BT).logits)
    dropping = build(HYBRID, dropout=0.5).train()
    assert not torch.equal(dropping(ids_BT).logits, dropping(ids_BT).logits)
    torch.testing.assert_close(dropping.eval()(ids_BT).logits, model(ids_BT).logits)


@each_layer
def test_bf16_autocast_is_near_float32(layer):
    model = build([layer, layer]).eval()
    ids_BT = random_ids()
    expected = model(ids_BT).logits
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = model(ids_BT, labels=ids_BT)
    assert output.logits.dtype == torch.bfloat16
    assert output.loss.dtype == torch.float32
    difference = (output.logits.float() - expected).square().mean().sqrt() / expected.square().mean().sqrt()
    assert difference < 32 * torch.finfo(torch.bfloat16).eps, (
        "32: unit vectors of small ones, as in delta nets"
    )
    output.loss.backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())


# Bad input


def test_ids_and_lengths_beyond_the_model_are_refused():
    model = build(HYBRID)
    with pytest.raises(
        ConfigError, match=r"a model of 50 tokens on id 50: ids must come from the model's own"
    ):
        model(torch.tensor([[1, 50, 2]]))
    with pytest.raises(ConfigError, match=r"a model of 50 tokens on id -1"):
        model(torch.tensor([[1, -1, 2]]))
    with pytest.raises(ConfigError, match=r"built for contexts of 24 tokens on 25: cut the input shorter"):
        model(random_ids(T=25))
    with pytest.raises(ConfigError, match=r"built for contexts of 24 tokens on 25"):
        model.generate(random_ids(T=20), max_new_tokens=6, do_sample=False)
    with pytest.raises(ConfigError, match="on rows of 0 tokens: at least one is needed"):
        model(random_ids(T=5)[:, :0])


@pytest.mark.parametrize(
    ("entries", "text"),
    [
        ({"layers": ["baseconv"]}, "unknown mixer 'baseconv'. Did you mean 'base_conv'?"),
        (
            {"layers": [{"mixer": "base_conv", "kernel": 3}]},
            "unknown option of base_conv 'kernel'. Did you mean 'kern",
        ),
        (
            {"layers": [{"mixer": "block_attention", "window": "7"}]},
            "block_attention: window is '7', but a whole number is needed",
        ),
        (
            {"layers": [{"mixer": "sliding_attention", "window": 7.5}]},
            "sliding_attention: window is 7.5, but a whole number is needed",
        ),
        (
            {"layers": [{"mixer": "attention", "n_heads": True}]},
            "attention: n_heads is True, but a whole number is needed",
        ),
        (
            {"layers": [{"mixer": "base_conv", "kernel_len": "3"}]},
            r"kernel_len is '3', but a whole number or nothing \(None\) is needed",
        ),
        (
            {"layers": [{"mixer": "h3", "dt_min": None}]},
            "h3: dt_min is None, but a number is needed",
        ),
        ({"layers": [{"n_heads": 2}]}, "a layer is {'n_heads': 2}, but it must name its mixer"),
        ({"layers": []}, r"layers is \[\], but a list with one entry a layer"),
        ({"layers": "attention"}, "layers is 'attention', but a list"),
        ({"state_mixer": "swigl"}, "unknown state mixer 'swigl'. Did you mean 'swiglu'?"),
        (
            {"state_mixer": {"name": "mlp", "expnd": 2}},
            "unknown option of mlp 'expnd'. Did you mean 'expand'?",
        ),
        ({"state_mixer": {"expand": 2}}, "a state mixer is {'expand': 2}, but it must be named"),
        ({"norm": "rms_norm"}, "unknown norm 'rms_norm'. Did you mean 'rmsnorm'?"),
        ({"dropout": 1.0}, "dropout is 1.0, but a probability"),
        ({"d_model": 0}, "d_model is 0, but a whole number from 1"),
        ({"context_len": 2.5}, "context_len is 2.5, but a whole number from 1"),
        ({"dmodel": 32}, "unknown entry 'dmodel' of a model's config. Did you mean 'd_model'?"),
        ({"layers": [{"mixer": "attention", "n_heads": 3}]}, "3 heads do not divide a width of 16"),
    ],
)
def test_a_config_that_cannot_be_is_refused(entries, text):
    with pytest.raises(ConfigError, match=text):
        build(**{"layers": ["base_conv"], **entries})


@pytest.mark.parametrize("name", STATE_MIXERS)
def test_every_state_mixer_follows_any_mixer(name):
    ids_BT = random_ids()
    model = build(HYBRID, state_mixer=name)
    loss = model(ids_BT, labels=ids_BT).loss
    loss.backward()
    assert loss.isfinite()
