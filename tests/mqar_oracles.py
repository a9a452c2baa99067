"""MQAR read literally, one sequence at a time; configs of all kinds; and a chi-square test of our own."""

import dataclasses
import math

from hypothesis import strategies as st

from recallgap.mqar import MqarConfig

CHANCE_Z = 4.5
"""Of a normal distribution: one test in 300,000 would fail though nothing is wrong. Seeds are fixed."""


@st.composite
def configs(draw):
    """Configs of all kinds, many with no room to spare in context or vocabulary."""
    compositional = draw(st.booleans())
    n_pairs = draw(st.sampled_from([4, 6, 9]) if compositional else st.integers(1, 7))
    made = {
        "n_pairs": n_pairs,
        "compositional": compositional,
        "key_len": 2 if compositional else draw(st.integers(1, 3)),
        "n_overwritten": draw(st.sampled_from([0, 0, 1, n_pairs])),
        "fillers": draw(st.sampled_from(["zero", "random"])),
    }
    slot, pairs = made["key_len"] + 1, n_pairs + made["n_overwritten"]
    if draw(st.booleans()):
        steps = draw(st.sets(st.integers(pairs, 3 * pairs), min_size=1, max_size=4))
        made["distances"] = tuple(slot * step for step in steps)
        least = slot * (pairs + max(steps))
    else:
        made["alpha"] = draw(st.sampled_from([0.0, 0.01, 1.0, 3.0]))
        made["n_passes"] = draw(st.integers(1, 3))
        least = slot * (pairs + n_pairs * made["n_passes"])
    made["context_len"] = least + draw(st.integers(0, 20))
    enough = MqarConfig(**made, vocab_size=10_000)
    vocab_size = 2 * max(enough.n_key_tokens + 1, enough.n_written)
    if made["fillers"] == "random":
        vocab_size = max(vocab_size, 1 + enough.n_key_tokens + enough.n_written + enough.n_fillers)
    return dataclasses.replace(enough, vocab_size=vocab_size + draw(st.integers(0, 20)))


def slots_of(ids, config):
    """The sequence cut into (key, token after it), without what is left over at its end."""
    s = config.key_len + 1
    slots = [ids[t : t + s] for t in range(0, len(ids) - s + 1, s)]
    return [(tuple(slot[:-1]), slot[-1]) for slot in slots]


def oracle_targets(ids, config):
    """Targets of a sequence: wherever a key is found again after the pairs, its latest value."""
    pairs, targets = {}, [-100] * len(ids)
    for number, (key, value) in enumerate(slots_of(ids, config)):
        if number < config.n_pairs + config.n_overwritten:
            pairs[key] = value
        elif key in pairs:
            targets[(number + 1) * (config.key_len + 1) - 2] = pairs[key]
    return targets


def oracle_hits(ids, config):
    """{position: distance} of the bigrams that a sequence with its answers repeats, by what they mean.

    An answer repeats its value's writing or its latest answer; later tokens of a queried key repeat the key;
    and a query straight after an answer repeats "value, next key" where that stood before.
    """
    s, hits, seen = config.key_len + 1, {}, {}
    slots = slots_of(ids, config)
    pairs = dict(slots[: config.n_pairs + config.n_overwritten])
    previous = None
    for number, (key, value) in enumerate(slots):
        if key not in pairs:  # filler
            previous = None
            continue
        events = [("next key", previous, key[0])] if previous else []
        events += [("within the key", i, key[i - 1 : i + 1]) for i in range(1, config.key_len)]
        events.append(("answer", key[-1], value))
        first = number * s + (0 if previous else 1)
        for t, event in enumerate(events, first):
            if event in seen:
                hits[t] = t - seen[event]
            seen[event] = t
        previous = value
    return hits


def chi_square(observed, expected):
    """(statistic, its critical value) of counts against expected counts with the same sum."""
    statistic = sum((o - e) ** 2 / e for o, e in zip(observed, expected, strict=True))
    df = len(observed) - 1
    spread = 2 / (9 * df)
    return statistic, df * (1 - spread + CHANCE_Z * math.sqrt(spread)) ** 3  # Wilson and Hilferty


def successive_draws(weights, n):
    """{(first, second, ...): probability} of n draws without replacement by weights."""
    chances = {(): 1.0}
    for _ in range(n):
        chances = {
            (*drawn, g): p * w / sum(x for h, x in enumerate(weights) if h not in drawn)
            for drawn, p in chances.items()
            for g, w in enumerate(weights)
            if g not in drawn
        }
    return chances
