"""Losses are those of the model: against float64, against models whose losses are known, tile by tile."""

import math

import models
import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from models import FAMILIES, V, losses_in, random_corpus
from oracles import oracle_losses

from recallgap.corpus import write_corpus
from recallgap.errors import CheckpointError
from recallgap.evaluate import Checkpoint, EvaluateConfig, evaluate, heads, load_checkpoint
from recallgap.evaluate.losses import evaluation_mode, token_losses

EXACT = 1e-5  # nats; float32 with logits of about 10 is good to 1e-6


def corpus_in(folder):
    return random_corpus(folder / "corpus", (0, 1, 2, 13, 20, 7))


def as_nan(losses):
    return np.array([math.nan if loss is None else loss for loss in losses])


@pytest.mark.parametrize("prefix", ["none", "bos"])
@pytest.mark.parametrize("family", FAMILIES)
def test_losses_are_the_models_own_in_float64(family, prefix, tmp_path):
    models.random_model(family).save_pretrained(tmp_path / "model")
    corpus = corpus_in(tmp_path)
    config = EvaluateConfig(policy="packed", context_len=12, prefix=prefix, batch_tokens=30, device="cpu")
    made = evaluate(tmp_path / "model", corpus, tmp_path / "losses", config=config)

    exact = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float64)
    bounds = [0, 12, 24, 36, 43]
    before = [] if prefix == "none" else [exact.config.bos_token_id]
    wanted = oracle_losses(exact.eval(), corpus.ids(0, 43).tolist(), bounds, before)
    np.testing.assert_allclose(losses_in(made), as_nan(wanted), rtol=0, atol=EXACT)
    assert made.results["head"] == "tiled"
    assert made.results["n_scored"] == sum(loss is not None for loss in wanted)
    assert made.results["loss_sum"] == pytest.approx(sum(filter(None, wanted)), abs=1e-4)


@pytest.mark.parametrize("family", ["gemma2", "phi"])
def test_the_own_logits_give_the_same(family, monkeypatch, tmp_path):
    checkpoint = Checkpoint.of(models.random_model(family), name=family)
    corpus = corpus_in(tmp_path)
    config = EvaluateConfig(context_len=12, batch_tokens=30, device="cpu")
    tiled = evaluate(checkpoint, corpus, tmp_path / "tiled", config=config)
    monkeypatch.setattr(heads, "_measured_tail", lambda *_: None)
    own = evaluate(checkpoint, corpus, tmp_path / "own", config=config)
    assert (tiled.results["head"], own.results["head"]) == ("tiled", "full")
    losses = (losses_in(made) for made in (tiled, own))
    np.testing.assert_allclose(*losses, rtol=0, atol=EXACT)


def test_the_logits_of_a_batch_are_never_made():
    model = models.random_model("llama").eval()
    head, sizes = heads.choose_head(model), []
    model.lm_head.register_forward_hook(lambda _module, _args, output: sizes.append(tuple(output.shape)))
    token_losses(model, head, torch.ones(3, 20, dtype=torch.int64), torch.tensor([20, 20, 20]))
    assert sizes == [(3, 1, V)]


def test_uniform_model(tmp_path):
    checkpoint = Checkpoint.of(models.uniform_model(), name="uniform")
    made = evaluate(checkpoint, corpus_in(tmp_path), tmp_path / "losses")
    loss_T = losses_in(made)
    np.testing.assert_allclose(loss_T[1:], math.log(V), rtol=0, atol=1e-6)
    assert made.results["perplexity"] == pytest.approx(V, rel=1e-6)


def test_successor_model_is_certain_of_its_own_sequence_only(tmp_path):
    checkpoint = Checkpoint.of(models.successor_model(), name="successor")
    counting, constant = np.arange(3 * V) % V, np.full(9, 5)
    corpus = write_corpus(tmp_path / "corpus", [counting, constant], vocab_size=V)
    config = EvaluateConfig(policy="document", context_len=1000)
    loss_T = losses_in(evaluate(checkpoint, corpus, tmp_path / "losses", config=config))
    assert np.all(loss_T[1 : 3 * V] == 0)
    np.testing.assert_allclose(loss_T[3 * V + 1 :], 200, atol=EXACT)  # not shifted by one: 5 after 5 is wrong


class OddHead(models.TableModel):
    """A linear head whose output is changed in a way that is not elementwise."""

    def __init__(self, config, change):
        super().__init__(config)
        self.head = torch.nn.Linear(config.vocab_size, config.vocab_size)
        self.change = change

    def get_output_embeddings(self):
        return self.head

    def forward(self, input_ids, use_cache=False):
        logits = self.head(self.table(input_ids))
        return models.CausalLMOutput(logits=self.change(logits))


@pytest.mark.parametrize(
    "change",
    [
        lambda logits: logits.flip(-1),
        lambda logits: logits + torch.arange(V),
        lambda logits: logits + 1e-5 * torch.arange(V),
        lambda logits: 2 * logits.log_softmax(-1),
        lambda logits: logits.relu(),
        lambda logits: logits[..., : V - 4],
        lambda logits: torch.nn.functional.pad(logits, (0, 3)),
    ],
    ids=["permuted", "shifted", "hardly shifted", "normalised", "clipped", "narrowed", "padded"],
)
def test_an_odd_head_falls_back_to_the_own_logits(change):
    torch.manual_seed(0)
    model = OddHead(models.TableConfig(V), change).eval()
    head = heads.choose_head(model)
    assert head.name == "full"
    ids = torch.tensor([[3, 1, 4, 1, 5]])
    loss_BT = token_losses(model, head, ids, torch.tensor([5]))
    log_probs = model(ids).logits[0].detach().double().log_softmax(-1)
    wanted = [-log_probs[t - 1, ids[0, t]] for t in range(1, 5)]
    np.testing.assert_allclose(loss_BT[0, 1:], wanted, atol=EXACT)


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(1, 9),
    vocab=st.integers(1, 23),
    seed=st.integers(0, 99),
    bias=st.booleans(),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
    cap=st.sampled_from([None, 5.0]),
)
def test_tiles_have_no_seams_and_are_float32(n, vocab, seed, bias, dtype, cap):
    generator = torch.Generator().manual_seed(seed)
    hidden, weight, offset = (
        (3 * torch.randn(*size, generator=generator)).to(dtype) for size in ((n, 6), (vocab, 6), (vocab,))
    )
    targets = torch.randint(0, vocab, (n,), generator=generator)
    logits = hidden.double() @ weight.double().T + (offset.double() if bias else 0)
    logits = 0.5 * logits if cap is None else cap * torch.tanh(0.5 * logits / cap)
    wanted = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
    head = heads.TiledHead(weight, offset if bias else None, heads.Tail(0.5, cap))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(heads, "TILES", {"cpu": (2, 5)})
        found = head.losses_of(hidden, targets)
    assert found.dtype == torch.float32
    assert bool((found >= 0).all())
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=EXACT)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_factors_are_not_shortened_on_any_hardware(dtype):
    torch.manual_seed(0)
    hidden, weight = (
        3 * torch.randn(rows, 64).to(dtype) for rows in (40, 300)
    )  # bf16 units take these sizes
    targets = torch.randint(0, 300, (40,))
    logits = hidden.double() @ weight.double().T
    wanted = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
    found = heads.TiledHead(weight, None, heads.Tail(1.0, None)).losses_of(hidden, targets)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=EXACT)


def test_float32_is_float32_whatever_the_process_allows(tmp_path):
    checkpoint, corpus = Checkpoint.of(models.random_model("llama"), name="m"), corpus_in(tmp_path)
    exact = evaluate(checkpoint, corpus, tmp_path / "exact")
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        same = evaluate(checkpoint, corpus, tmp_path / "same")
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
    assert same.meta == exact.meta


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_half_precision_is_near(family, dtype, tmp_path):
    models.random_model(family).save_pretrained(tmp_path / "model")
    corpus = corpus_in(tmp_path)
    found = {}
    for name in ("float32", dtype):
        config = EvaluateConfig(context_len=12, dtype=name, device="cpu")
        found[name] = evaluate(tmp_path / "model", corpus, tmp_path / name, config=config)
        assert found[name].config["dtype"] == name
        assert found[name].results["head"] == "tiled"
    exact, half = (losses_in(made) for made in found.values())
    assert 0 < np.nanmax(np.abs(exact - half)) < 0.3
    assert found["float32"].inputs == found[dtype].inputs


def test_dropout_is_off_and_the_mode_is_restored(tmp_path):
    model = models.random_model("gpt2", dropout=0.5)
    model.transformer.h[1].eval()
    before = {name: module.training for name, module in model.named_modules()}
    checkpoint, corpus = Checkpoint.of(model, name="m"), corpus_in(tmp_path)
    config = EvaluateConfig(context_len=12)
    first, second = (evaluate(checkpoint, corpus, tmp_path / name, config=config) for name in "ab")
    assert first.meta == second.meta
    assert {name: module.training for name, module in model.named_modules()} == before
    with pytest.raises(ZeroDivisionError), evaluation_mode(model):
        assert not any(module.training for module in model.modules())
        raise ZeroDivisionError
    assert {name: module.training for name, module in model.named_modules()} == before


def test_training_goes_on_after_an_evaluation(tmp_path):
    model = models.random_model("llama")
    evaluate(Checkpoint.of(model, name="m"), corpus_in(tmp_path), tmp_path / "losses")
    model(input_ids=torch.tensor([[1, 2, 3]]), labels=torch.tensor([[1, 2, 3]])).loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert not model.lm_head._forward_pre_hooks and not model.lm_head._forward_hooks


def test_a_model_that_looks_ahead_is_refused():
    config = transformers.BertConfig(**models.LLAMA)
    model = transformers.BertLMHeadModel(config).eval()
    with pytest.raises(CheckpointError, match=r"BertLMHeadModel.*change with the tokens that follow"):
        heads.choose_head(model)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("family", ["llama", "gemma2", "mamba"])
def test_gpu_and_cpu_agree(family, tmp_path):
    models.random_model(family).save_pretrained(tmp_path / "model")
    corpus = corpus_in(tmp_path)
    losses = []
    for device in ("cpu", "cuda"):
        checkpoint = load_checkpoint(tmp_path / "model", device=device)
        made = evaluate(checkpoint, corpus, tmp_path / device, config=EvaluateConfig(context_len=12))
        losses.append(losses_in(made))
    np.testing.assert_allclose(*losses, rtol=0, atol=1e-4)
