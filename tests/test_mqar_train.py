"""One model on one MQAR task: it learns, it repeats, and what is measured is what is said."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from recallgap.errors import ConfigError
from recallgap.models.lm import RecallGapForCausalLM
from recallgap.mqar.config import IGNORED, MqarConfig
from recallgap.mqar.generate import generate
from recallgap.mqar.models import MODELS, model_config
from recallgap.mqar.plan import Point, Training
from recallgap.mqar.train import accuracy, labelled_logits, learning_rate_share, train

TINY = MqarConfig(vocab_size=16, context_len=16, n_pairs=2)
SHORT = Training(
    state_mixer="identity",
    embed_dropout=0.0,
    epochs=2,
    epoch_sequences=48,
    fresh=True,
    eval_sequences=50,
)


def point(model="attention", width=16, task=TINY, batch_size=16, learning_rate=1e-3, seed=0):
    return Point(model, width, task, batch_size, learning_rate, seed)


def test_a_training_leaves_the_processor_as_it_was():
    train(point(), dataclasses.replace(SHORT, epochs=1))
    assert float(torch.tensor(1e-40) * 1.0) > 0.0


def built(a_point, training=SHORT):
    torch.manual_seed(a_point.seed)
    return RecallGapForCausalLM(model_config(a_point, training))


def batch(task, n, seed=0):
    return map(torch.from_numpy, generate(task, n, np.random.default_rng(seed)))


@pytest.mark.parametrize("name", MODELS)
def test_every_model_trains_and_repeats_exactly(name):
    torch.manual_seed(1)
    first = train(point(name), SHORT)
    torch.manual_seed(2)
    assert first == train(point(name), SHORT)
    assert first["steps"] == 6
    assert first["epochs"] == len(first["curve"]) == 2
    assert first != train(point(name, seed=1), SHORT)


def test_training_leaves_the_random_state_of_the_caller_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    train(point(), SHORT)
    assert torch.equal(torch.rand(3), expected)


def test_attention_solves_a_tiny_task():
    training = dataclasses.replace(SHORT, epochs=40, epoch_sequences=3200)
    result = train(point(width=32, batch_size=32, learning_rate=1e-2), training)
    assert result["accuracy"] > 0.99
    assert result["epochs"] < 40, "it stops when the task is solved"


@pytest.mark.parametrize("name", MODELS)
def test_random_weights_are_at_chance(name):
    """A uniform guess over the vocabulary is right in 1 of 64 cases; 1 of 32 if it knows the values."""
    task = MqarConfig(vocab_size=64, context_len=32, n_pairs=4)
    found = accuracy(built(point(name, task=task)), *batch(task, 400))
    assert found < 1 / 8


def test_labelled_logits_are_those_of_the_whole_model():
    model = built(point()).eval()
    ids_BT, targets_BT = batch(TINY, 5)
    labelled_BT = targets_BT != IGNORED
    assert labelled_BT.sum() == 10
    expected_NV = model(ids_BT).logits[labelled_BT]
    torch.testing.assert_close(labelled_logits(model, ids_BT, labelled_BT), expected_NV)
    assert model(ids_BT).logits.shape == (5, 16, 16), "nothing stays behind"


class Knowing(torch.nn.Module):
    """Predicts token `answer` everywhere."""

    def __init__(self, answer):
        super().__init__()
        self.head, self.answer = torch.nn.Linear(16, 16), answer

    def forward(self, ids_BT):
        hidden_BTV = torch.nn.functional.one_hot(torch.full_like(ids_BT, self.answer), 16).float()
        return type("Output", (), {"logits": 2 * self.head(hidden_BTV)})()


def test_accuracy_is_the_share_of_labelled_positions_that_are_right():
    model = Knowing(answer=9)
    with torch.no_grad():
        model.head.weight.copy_(torch.eye(16))
        model.head.bias.zero_()
    ids_BT, targets_BT = batch(TINY, 3000)
    right = (targets_BT == 9).sum() / (targets_BT != IGNORED).sum()
    assert 0.05 < right < 0.3
    assert accuracy(model, ids_BT, targets_BT) == pytest.approx(float(right))


def test_a_run_that_diverges_is_a_result():
    result = train(point(learning_rate=1e30), dataclasses.replace(SHORT, warmup=0.0))
    assert result["diverged"]
    assert result["accuracy"] is None
    assert result["loss"] is None
    assert result["epochs"] == 0, "it ends at once"


def test_a_fixed_set_is_seen_again_in_each_epoch(monkeypatch):
    drawn = []

    def counting(task, n, rng):
        drawn.append(n)
        return generate(task, n, rng)

    monkeypatch.setattr("recallgap.mqar.train.generate", counting)
    train(point(), dataclasses.replace(SHORT, fresh=False))
    assert drawn == [50, 48]
    drawn.clear()
    train(point(), dataclasses.replace(SHORT, epoch_sequences=40))
    assert drawn == [50, 16, 16, 8, 16, 16, 8]


def test_learning_rate_rises_over_the_warm_up_and_falls_as_half_a_cosine():
    training = dataclasses.replace(SHORT, epochs=10, warmup=0.1)
    shares = [learning_rate_share(step, 10, training) for step in range(100)]
    assert shares[:10] == pytest.approx([(step + 1) / 10 for step in range(10)])
    assert shares[55] == pytest.approx(0.5)
    assert shares[10:] == sorted(shares[10:], reverse=True)
    assert shares[99] < 1e-3


def test_the_released_schedule_changes_between_epochs_only():
    """CosineAnnealingLR with T_max = epochs, stepped once an epoch."""
    training = dataclasses.replace(SHORT, epochs=4, warmup=0.0, rate_changes="epoch")
    shares = [learning_rate_share(step, 3, training) for step in range(12)]
    expected = [0.5 * (1 + math.cos(math.pi * epoch / 4)) for epoch in range(4) for _ in range(3)]
    assert shares == pytest.approx(expected)


def test_parameters_may_learn_by_the_rules_of_their_mixer(monkeypatch):
    """The time steps of H3 learn at 1e-3 at most, without decay; alike, they have what all others have."""
    seen = []

    class Watched(torch.optim.AdamW):
        def step(self, *args, **kwargs):
            seen.append(sorted((group["lr"], group["weight_decay"]) for group in self.param_groups))
            return super().step(*args, **kwargs)

    monkeypatch.setattr(torch.optim, "AdamW", Watched)
    training = dataclasses.replace(SHORT, epochs=1, warmup=0.5)
    for own_rules in (False, True):
        train(point("h3", learning_rate=4e-3), dataclasses.replace(training, own_rules=own_rules))
    alike, ruled = seen[:3], seen[3:]
    assert alike == [[(pytest.approx(4e-3 * share), 0.1)] for share in (0.5, 1.0, 1.0)]
    slow, plain, decayed = ((1e-3, 0.0), (4e-3, 0.0), (4e-3, 0.1))
    assert ruled == [
        [(pytest.approx(rate * share), decay) for rate, decay in (slow, plain, decayed)]
        for share in (0.5, 1.0, 1.0)
    ]


def test_dropout_is_the_embeddings_alone():
    """With dropout of the embedding a training differs; without dropout in blocks evaluation repeats."""
    dropped = train(point(), dataclasses.replace(SHORT, embed_dropout=0.5))
    assert dropped["loss"] != train(point(), SHORT)["loss"]
    assert dropped == train(point(), dataclasses.replace(SHORT, embed_dropout=0.5))


def test_layers_follow_the_training():
    training = dataclasses.replace(SHORT, n_layers=4, n_attention_layers=2, state_mixer="echo")
    task = MqarConfig(vocab_size=64, context_len=32, n_pairs=4)
    layers = {name: model_config(point(name, task=task), training).layers for name in MODELS}
    assert {name: len(entries) for name, entries in layers.items()} == {
        name: 2 if name.endswith("attention") else 4 for name in MODELS
    }
    assert [layer["kernel_len"] for layer in layers["base_conv"]] == [3, None, 3, None]
    assert layers["h3"][0]["d_state"] == 32
    assert layers["h3"][0]["head_dim"] == 2
    assert layers["attention"][0]["n_heads"] == 1
    assert layers["sliding_attention"][0]["window"] == layers["block_attention"][0]["window"] == 8
    assert layers["autocorr_conv"][0]["n_lags"] == 8
    assert all(layer["state_mixer"] == {"name": "echo"} for entries in layers.values() for layer in entries)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"epochs": 0}, "epochs is 0, but at least 1 is needed"),
        ({"embed_dropout": 1.0}, "embed_dropout is 1.0, but must be from 0 to below 1"),
        ({"rate_changes": "epoch"}, "warmup is 0.1, but a learning rate that stays the same"),
        ({"rate_changes": "steps"}, "unknown change of the learning rate 'steps'. Did you mean 'step'"),
    ],
)
def test_a_training_that_cannot_be_is_refused(changes, text):
    with pytest.raises(ConfigError, match=text):
        Training(**changes)
