"""Losses by slice during training, and the counts of what was seen, against literal readings."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from recallgap.corpus import write_corpus
from recallgap.errors import ConfigError
from recallgap.evaluate.heads import choose_head
from recallgap.models import RecallGapForCausalLM
from recallgap.pretrain.order import DataOrder, PackedContexts
from recallgap.pretrain.recall import RecallWatch, SeenCounts, make_labels
from recallgap.recall import LabelConfig
from tests.pretrain_cases import T, V, corpora, corpus, model_config

MAX_TRAIN_COUNT = 20


@pytest.fixture
def watched(tmp_path):
    train, evaluation = corpora(tmp_path)
    config = LabelConfig(context_len=T, max_train_count=MAX_TRAIN_COUNT)
    labels = make_labels(train, evaluation, tmp_path / "recall", config=config)
    return train, evaluation, labels


def literal_slices(train, evaluation):
    """{slice: set of (context, position)} by the definitions, token by token."""
    stream, trained = ([int(i) for i in c.ids(0, c.n_tokens)] for c in (evaluation, train))
    counts = {}
    for first, second in pairwise(trained):
        if first != 0:  # the separator ends a document: no bigram crosses it
            counts[first, second] = counts.get((first, second), 0) + 1
    found = {"all": set(), "ar_hit": set(), "rare_first": set()}
    for c in range(len(stream) // T):
        ids = stream[c * T : (c + 1) * T]
        for t in range(1, T):
            bigram = (ids[t - 1], ids[t])
            found["all"].add((c, t))
            rare = 0 not in bigram and counts.get(bigram, 0) <= MAX_TRAIN_COUNT
            before = [(ids[s - 1], ids[s]) for s in range(1, t)]
            if rare:
                found["ar_hit" if bigram in before else "rare_first"].add((c, t))
    return {**found, "other": found["all"] - found["ar_hit"]}


def test_slices_are_the_definitions(watched):
    train, evaluation, labels = watched
    watch = RecallWatch(evaluation, labels, context_len=T)
    literal = literal_slices(train, evaluation)
    for name, mask_CT in watch.slices.items():
        assert {(int(c), int(t)) for c, t in np.argwhere(mask_CT)} == literal[name], name
    assert all(literal.values())


def test_losses_and_sums_are_those_of_the_models_own_logits(watched):
    _, evaluation, labels = watched
    watch = RecallWatch(evaluation, labels, context_len=T, eval_tokens=5 * T + 3)
    torch.manual_seed(0)
    model = RecallGapForCausalLM(model_config(dropout=0.0)).eval()
    loss_CT = watch.losses(model, choose_head(model), 2)
    assert loss_CT.shape == (5, T)
    ids = torch.from_numpy(watch.ids_CT)
    with torch.no_grad():
        logits = model(input_ids=ids).logits
    expected = torch.nn.functional.cross_entropy(
        logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), reduction="none"
    )
    np.testing.assert_allclose(loss_CT[:, 1:].ravel(), expected.numpy(), rtol=2e-5)
    sums = watch.sums(loss_CT)
    assert sums["all"]["n"] == 5 * (T - 1) == sums["ar_hit"]["n"] + sums["other"]["n"]
    assert sums["all"]["loss_sum"] == pytest.approx(float(expected.sum()), rel=1e-5)
    by_hand = sum(float(loss_CT[c, t]) for c, t in np.argwhere(watch.slices["ar_hit"]))
    assert sums["ar_hit"]["loss_sum"] == pytest.approx(by_hand)


def test_processes_share_the_contexts(watched):
    _, evaluation, labels = watched
    """Seven over three: one process has three contexts and the others, which run as many, two."""
    watch = RecallWatch(evaluation, labels, context_len=T, eval_tokens=7 * T)
    model = RecallGapForCausalLM(model_config()).eval()
    head, n_rows = choose_head(model), []
    model.register_forward_pre_hook(
        lambda module, args, kwargs: n_rows.append(len(kwargs["input_ids"])), with_kwargs=True
    )
    whole = watch.sums(watch.losses(model, head, 4))
    n_rows.clear()
    parts = [watch.sums(watch.losses(model, head, 4, rank, 3), None, rank, 3) for rank in range(3)]
    assert n_rows == [3, 3, 3]
    for name, found in whole.items():
        assert found["n"] == sum(part[name]["n"] for part in parts)
        assert found["loss_sum"] == pytest.approx(sum(part[name]["loss_sum"] for part in parts))


def test_counts_of_what_was_seen(watched):
    train, evaluation, labels = watched
    watch = RecallWatch(evaluation, labels, context_len=T)
    dataset = PackedContexts(train, T)
    order = DataOrder(len(dataset), seed=3)
    seen = SeenCounts(watch, dataset, order)
    seen.BLOCK = 7  # so that several blocks are counted
    for position in (0, 9, 9, 2 * len(dataset) + 5):
        counts = {}
        for context in order.contexts(0, position).tolist():
            ids = dataset[context].tolist()
            for first, second in pairwise(ids):
                if 0 not in (first, second):
                    counts[first, second] = counts.get((first, second), 0) + 1
        found_CT = seen.advance_to(position)
        for c, ids in enumerate(watch.ids_CT.tolist()):
            for t in range(1, T):
                assert found_CT[c, t] == counts.get((ids[t - 1], ids[t]), 0)
    sums = watch.sums(np.ones(watch.shape, np.float32), seen_CT=found_CT)
    hits = watch.scored_CT & (watch.distance_CT > 0) & (found_CT <= MAX_TRAIN_COUNT)
    assert sums["ar_hit_seen"] == {"n": int(hits.sum()), "loss_sum": float(hits.sum())}
    assert sums["ar_hit_seen"]["n"] + sums["other_seen"]["n"] == sums["all"]["n"]


def test_the_first_token_of_a_context_ends_no_bigram_that_is_counted(tmp_path):
    """Its key, 0, is that of the bigram (0, 0), which is an ordinary one where 0 ends no document."""
    zeros = write_corpus(tmp_path / "zeros", [np.zeros(6 * T, int)], vocab_size=V)
    dataset = PackedContexts(zeros, T)
    watch = SimpleNamespace(ids_CT=np.zeros((1, T), np.int64))
    found_CT = SeenCounts(watch, dataset, DataOrder(6, 0)).advance_to(4)
    assert found_CT[0, 1:].tolist() == [4 * (T - 1)] * (T - 1)


def test_labels_of_something_else_are_refused(watched, tmp_path):
    _, evaluation, labels = watched
    with pytest.raises(ConfigError, match="their context_len is 16, but 8 is trained"):
        RecallWatch(evaluation, labels, context_len=8)
    other = corpus(tmp_path / "other", n_documents=3, seed=9)
    with pytest.raises(ConfigError, match="these are of corpus"):
        RecallWatch(other, labels, context_len=T)
