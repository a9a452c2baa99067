"""The learning rate over the steps of a run, as a share of its highest."""

import math


def cosine(progress, decay):  # noqa: ARG001
    """Half a cosine from 1 to 0 over the steps after the warm-up (arXiv 1608.03983, without restarts)."""
    return 0.5 * (1 + math.cos(math.pi * progress))


def wsd(progress, decay):
    """Warm-up, stable, decay (arXiv 2404.06395, section 4): 1, then straight to 0 in the last `decay`."""
    return 1.0 if decay <= 0 else min(1.0, (1 - progress) / decay)


SCHEDULES = {"cosine": cosine, "wsd": wsd}


def learning_rate_share(step, n_steps, config):
    """The share of `config.learning_rate` that optimizer step number `step` (from 0) of `n_steps` uses.

    It rises in a straight line over the warm-up, whose last step has all of it, and then follows the
    schedule, whose last step has `config.final_learning_rate`.
    """
    n_warmup = math.ceil(config.warmup * n_steps)
    if step < n_warmup:
        return (step + 1) / n_warmup
    after = n_steps - n_warmup
    progress = (step - n_warmup) / max(after - 1, 1)
    share = SCHEDULES[config.schedule](min(progress, 1.0), config.decay * n_steps / max(after, 1))
    return config.final_learning_rate + (1 - config.final_learning_rate) * share
