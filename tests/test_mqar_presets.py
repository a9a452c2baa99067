"""The presets of sweeps over MQAR, and how settings change them."""

import dataclasses
import json

import pytest

from recallgap.errors import ConfigError
from recallgap.mqar import sweep as sweeping
from recallgap.mqar.config import MqarConfig
from recallgap.mqar.plan import Sweep, Training, task_name, with_settings
from recallgap.mqar.presets import PRESETS, preset_sweep, spread


@pytest.mark.parametrize("name", ["paper", "released"])
def test_figure_2s_presets_are_the_papers_grid(name):
    plan = PRESETS[name]()
    assert [(task.context_len, task.n_pairs) for task in plan.tasks] == [
        (64, 4), (128, 8), (256, 16), (512, 64),
    ]  # fmt: skip
    assert {(task.vocab_size, task.alpha, task.fillers) for task in plan.tasks} == {(8192, 0.01, "zero")}
    assert plan.widths == (64, 128, 256, 512)
    assert plan.learning_rates == pytest.approx([10 ** (-4 + 2 * i / 3) for i in range(4)], rel=3e-3)
    assert len(plan.points) == 5 * 4 * 4 * 4
    assert 7 * 4 * 4 * 4 == 448, "the authors' count, with Based and Mamba"
    training = plan.training
    assert (training.epochs, training.epoch_sequences, training.fresh) == (64, 100_000, False)
    assert (training.eval_sequences, training.stop_at) == (3000, 0.99)
    assert (training.weight_decay, training.embed_dropout) == (0.1, 0.1)


def test_the_printed_set_up_and_the_released_code_differ_where_the_paper_does():
    printed, released = PRESETS["paper"](), PRESETS["released"]()
    changes = {
        field.name: (getattr(printed.training, field.name), getattr(released.training, field.name))
        for field in dataclasses.fields(Training)
        if getattr(printed.training, field.name) != getattr(released.training, field.name)
    }
    assert changes == {
        "n_layers": (2, 4),
        "state_mixer": ("mlp", "echo"),
        "warmup": (0.1, 0.0),
        "rate_changes": ("step", "epoch"),
    }
    assert (printed.batch_sizes, released.batch_sizes) == ((64, 64, 16, 8), (512, 512, 256, 128))


def test_the_small_preset_is_what_the_issue_asks_for():
    plan = PRESETS["small"]()
    assert plan.widths == (16, 32, 64, 128)
    assert {task.context_len for task in plan.tasks} == {64}
    assert 256 <= plan.tasks[0].vocab_size <= 1024
    assert set(plan.models) == {
        "attention", "base_conv", "hyena", "h3", "rwkv", "retnet", "autocorr_conv",
    }  # fmt: skip
    assert 2 <= len(plan.learning_rates) <= 3


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_can_be_built(name):
    """All points have names of their own and models of a width that fits."""
    plan = PRESETS[name]()
    assert len({point.name for point in plan.points}) == len(plan.points)
    sweeping.check(plan)
    json.dumps(plan.config)


def test_appendix_f_varies_one_thing():
    def varied(name, of):
        return [of(task) for task in PRESETS[name]().tasks]

    assert varied("distances", lambda task: len(task.distances)) == [1, 2, 5, 13, 25]
    assert varied("pairs", lambda task: task.n_pairs) == [1, 2, 4, 8]
    ranges = varied("range", lambda task: (len(task.distances), min(task.distances), max(task.distances)))
    assert ranges == [(4, 8, 14), (4, 8, 26), (4, 8, 38), (4, 8, 56)]
    assert {"sliding_attention", "block_attention"} < set(PRESETS["range"]().models)


@pytest.mark.parametrize("n", [1, 2, 5, 13, 25])
def test_spread_distances_are_even_and_differ(n):
    found = spread(8, 56, n)
    assert len(set(found)) == n
    assert all(distance % 2 == 0 for distance in found)
    assert n == 1 or (found[0], found[-1]) == (8, 56)


def test_settings_change_lists_training_and_tasks():
    plan = with_settings(
        PRESETS["paper"](),
        ["tasks=n64-p4,n128-p8", "widths=16,32", "learning_rates=1e-3", "warmup=0.2", "fresh=true",
         "vocab_size=512", "batch_sizes=32"],
    )  # fmt: skip
    assert [task_name(task) for task in plan.tasks] == ["n64-p4", "n128-p8"]
    assert plan.batch_sizes == (32, 32)
    assert plan.widths == (16, 32)
    assert plan.learning_rates == (1e-3,)
    assert (plan.training.warmup, plan.training.fresh) == (0.2, True)
    assert {task.vocab_size for task in plan.tasks} == {512}
    fixed = with_settings(PRESETS["small"](), ["distances=16,20"])
    assert fixed.tasks[0].distances == (16, 20)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (["width=16"], "unknown setting of a sweep 'width'. Did you mean 'widths'"),
        (["widths=16.5"], "widths is '16.5', but a whole number is needed"),
        (["fresh=maybe"], "fresh is 'maybe', but true or false is needed"),
        (["epochs"], "--set epochs: a setting is NAME=VALUE"),
        (["learning_rates="], "--set learning_rates=: a setting is NAME=VALUE, with a value"),
        (["learning_rates=1.0000001e-3,1e-3"], "learning_rates of a sweep are .* each once"),
        (["widths=16,16"], r"widths of a sweep are \[16, 16\], but need at least one, each once"),
        (["learning_rates=0"], r"learning_rates of a sweep hold \[0.0\], but positive numbers"),
        (["batch_sizes=8,16"], "a sweep of 1 tasks has 2 batch sizes"),
        (["n_pairs=17"], "context_len is 64, but 17 pairs and 17 queries of 2 tokens each need at least 68"),
        (["seeds=-1"], r"seeds of a sweep are \[-1\], but seeds go from 0 to 9223372036854775807"),
        (["seeds=1e30"], "but seeds go from 0 to 9223372036854775807"),
        (["stop_at=nan"], "stop_at is nan, but an accuracy is needed"),
        (["tasks=n64-p5"], "unknown task of the sweep 'n64-p5'. Did you mean"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(settings, text):
    with pytest.raises(ConfigError, match=text):
        preset_sweep("small", settings=settings)


@pytest.mark.parametrize(("name", "setting"), [("pairs", "n_pairs=2"), ("distances", "distances=8")])
def test_a_setting_of_what_the_preset_varies_is_refused(name, setting):
    with pytest.raises(ConfigError, match=r"tasks of a sweep are \['n64-.* cannot be what the sweep varies"):
        preset_sweep(name, settings=[setting])


def test_unknown_names_are_refused_with_the_nearest():
    with pytest.raises(ConfigError, match=r"unknown preset 'smal'\. Did you mean 'small'"):
        preset_sweep("smal")
    with pytest.raises(ConfigError, match=r"unknown model 'baseconv'\. Did you mean 'base_conv'"):
        preset_sweep("small", models=["attention", "baseconv"])


def test_tasks_that_would_share_a_name_are_refused():
    task = MqarConfig(vocab_size=64)
    with pytest.raises(ConfigError, match="must differ in what their names say"):
        Sweep(
            varied="width",
            models=("attention",),
            widths=(8,),
            tasks=(task, dataclasses.replace(task, alpha=1.0)),
            batch_sizes=(8, 8),
            learning_rates=(1e-3,),
            training=Training(),
        )
