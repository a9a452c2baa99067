"""The sweeps that there are. `paper` and `released` are the paper's figure 2; the others fit two CPU cores.

The paper's printed set-up (E.2) differs from its released code (zoology, tag iclr24): docs/mqar.md.
"""

import dataclasses

from recallgap.mqar.config import MqarConfig
from recallgap.mqar.plan import Sweep, Training, with_settings
from recallgap.registry import pick

FIGURE_2_SIZES = ((64, 4), (128, 8), (256, 16), (512, 64))
"""(context_len, n_pairs) of its panels."""
FIGURE_2 = {
    "varied": "width",
    "models": ("attention", "hyena", "rwkv", "h3", "base_conv"),
    "widths": (64, 128, 256, 512),
    "tasks": tuple(MqarConfig(context_len=N, n_pairs=D) for N, D in FIGURE_2_SIZES),
    "learning_rates": (1e-4, 4.64e-4, 2.15e-3, 1e-2),
    "seeds": (123,),
}
ALL = ("attention", "base_conv", "hyena", "h3", "rwkv", "retnet", "autocorr_conv")
SMALL_TRAINING = Training(
    n_layers=2,
    n_attention_layers=2,
    state_mixer="identity",
    embed_norm=True,
    embed_dropout=0.0,
    epochs=20,
    epoch_sequences=6400,
    warmup=0.05,
    eval_sequences=500,
)
SMALL = {"learning_rates": (2e-3, 6e-3), "training": SMALL_TRAINING}


def small():
    """Figure 2's shape on two CPU cores in under an hour: N = 64, narrow models, a small vocabulary.

    By the mixers' own rules: without them H3 and RWKV stay below models that need more width (docs/mqar.md).
    """
    task = MqarConfig(vocab_size=256, context_len=64, n_pairs=4)
    grid = {"widths": (16, 32, 64, 128), "tasks": (task,), "batch_sizes": (32,)}
    training = dataclasses.replace(SMALL_TRAINING, own_rules=True)
    return Sweep(varied="width", models=ALL, **grid, learning_rates=(2e-3, 3e-3, 6e-3), training=training)


def paper():
    """Figure 2 as printed: 2 layers, each a mixer and an MLP, LayerNorm, warm-up over 10 % of the steps.

    E.2 gives batches of 64, 16 and 8; that they belong to N <= 128, 256 and 512 is our reading.
    """
    return Sweep(**FIGURE_2, batch_sizes=(64, 64, 16, 8), training=Training())


def released():
    """Figure 2 as in the released code: 4 layers (attention 2) without MLP, no warm-up, larger batches."""
    training = Training(
        n_layers=4, n_attention_layers=2, state_mixer="echo", warmup=0.0, rate_changes="epoch"
    )
    return Sweep(**FIGURE_2, batch_sizes=(512, 512, 256, 128), training=training)


def distances():
    """Appendix F, experiment 1: more and more distinct distances from a key to its query."""
    tasks = [{"distances": spread(8, 56, n)} for n in (1, 2, 5, 13, 25)]
    return _appendix_f("distances", tasks, ("attention", "base_conv", "hyena", "autocorr_conv"))


def pairs():
    """Appendix F, experiment 2: more and more pairs in a sequence."""
    tasks = [{"n_pairs": n} for n in (1, 2, 4, 8)]
    return _appendix_f("pairs", tasks, ("attention", "base_conv", "rwkv", "retnet"))


def range_():
    """Appendix F, experiment 3: four distances, ever farther apart; windows and blocks of 16 tokens."""
    tasks = [{"distances": spread(8, longest, 4)} for longest in (14, 26, 38, 56)]
    return _appendix_f("range", tasks, ("attention", "sliding_attention", "block_attention", "base_conv"))


def _appendix_f(varied, tasks, models):
    tasks = tuple(MqarConfig(**{"vocab_size": 256, "context_len": 64, "n_pairs": 4} | task) for task in tasks)
    grid = {"widths": (32,), "tasks": tasks, "batch_sizes": (32,) * len(tasks)}
    return Sweep(**SMALL, varied=varied, models=models, **grid)


def spread(first, last, n):
    """n even distances from `first` to `last`, about as far from each other.

    >>> spread(8, 56, 5)
    (8, 20, 32, 44, 56)
    """
    if n == 1:
        return ((first + last) // 4 * 2,)
    return tuple(first + 2 * round((last - first) / 2 * i / (n - 1)) for i in range(n))


PRESETS = {
    "small": small,
    "paper": paper,
    "released": released,
    "distances": distances,
    "pairs": pairs,
    "range": range_,
}


def preset_sweep(name, *, settings=(), models=None):
    """The sweep of a preset, with settings (`with_settings`) and, if given, other models of `MODELS`."""
    sweep = pick("preset", PRESETS, name)()
    if models is not None:
        sweep = dataclasses.replace(sweep, models=tuple(models))
    return with_settings(sweep, settings)
