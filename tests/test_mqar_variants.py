"""Variants of MQAR: passes, overwriting, keys of several tokens, fixed distances; what is refused and why."""

import collections
import itertools
import re

import numpy as np
import pytest
from mqar_oracles import chi_square, slots_of

from recallgap.errors import ConfigError
from recallgap.mqar import MqarConfig, generate


def sequences(config, n, seed=0):
    ids_BT, targets_BT = generate(config, n, np.random.default_rng(seed))
    return list(zip(ids_BT.tolist(), targets_BT.tolist(), strict=True))


def pairs_of(ids, config):
    return slots_of(ids, config)[: config.n_pairs + config.n_overwritten]


def distances(ids, targets, config):
    """{key: tokens from its latest writing to its queries}."""
    written = {key: m * config.slot_len for m, (key, _) in enumerate(pairs_of(ids, config))}
    found = {}
    for t in np.flatnonzero(np.array(targets) >= 0):
        start = t - config.key_len + 1
        key = tuple(ids[start : t + 1])
        found.setdefault(key, []).append(int(start) - written[key])
    return found


def test_passes_query_every_key_anew():
    config = MqarConfig(context_len=64, n_pairs=4, n_passes=3)
    for ids, targets in sequences(config, 50):
        assert sorted(map(len, distances(ids, targets, config).values())) == [3] * 4


def test_all_slots_are_taken_where_there_is_no_other_way():
    for ids, targets in sequences(MqarConfig(context_len=32, n_pairs=4, n_passes=3), 50):
        assert np.flatnonzero(np.array(targets) >= 0).tolist() == list(range(8, 32, 2))
        assert ids[9::2] == [0] * 12


def test_overwritten_keys_stand_twice_with_different_values_in_any_places():
    config = MqarConfig(context_len=32, n_pairs=5, n_overwritten=2)
    places = collections.Counter()
    for ids, _ in sequences(config, 4000):
        values = collections.defaultdict(list)
        for m, (key, value) in enumerate(pairs_of(ids, config)):
            values[key].append((value, m))
        twice = [tuple(m for _, m in two) for two in values.values() if len(two) == 2]
        assert len(twice) == 2 and all(len({v for v, _ in two}) == len(two) for two in values.values())
        places.update(twice)
    assert len(places) == 21
    statistic, critical = chi_square(places.values(), [8000 / 21] * 21)
    assert statistic < critical


def test_a_compositional_key_is_known_by_both_of_its_tokens_only():
    config = MqarConfig(context_len=90, n_pairs=12, key_len=2, compositional=True)
    assert config.grid == (3, 4) and config.n_key_tokens == 7
    orders = set()
    for ids, _ in sequences(config, 50):
        keys = [key for key, _ in pairs_of(ids, config)]
        first, second = (collections.Counter(key[i] for key in keys) for i in (0, 1))
        assert sorted(first.values()) == [4] * 3 and sorted(second.values()) == [3] * 4
        assert len(set(keys)) == 12 and not set(first) & set(second)
        orders.add(tuple(list(first).index(key[0]) for key in keys))
    assert len(orders) > 40, "the place of a pair does not tell its first token"


def test_a_token_of_a_long_key_is_in_no_other_key():
    config = MqarConfig(context_len=80, n_pairs=5, key_len=3)
    for ids, _ in sequences(config, 50):
        assert len({token for key, _ in pairs_of(ids, config) for token in key}) == 15


@pytest.mark.parametrize("variant", [{}, {"key_len": 2, "n_overwritten": 3}])
def test_fixed_distances_are_each_as_likely(variant):
    """As independent draws would be: the number of times a sequence uses a distance is binomial."""
    config = MqarConfig(context_len=120, n_pairs=6, distances=(30, 36, 54, 60), **variant)
    uses = collections.Counter()
    for ids, targets in sequences(config, 3000):
        found = [d for many in distances(ids, targets, config).values() for d in many]
        assert len(found) == 6 and set(found) <= set(config.distances)
        uses.update((d, found.count(d)) for d in config.distances)
    binomial = [p * 3000 for p in (729 / 4096, 1458 / 4096, 1215 / 4096, 540 / 4096, 154 / 4096)]
    for d in config.distances:
        observed = [uses[d, n] for n in range(4)] + [sum(uses[d, n] for n in range(4, 7))]
        statistic, critical = chi_square(observed, binomial)
        assert statistic < critical


def test_fixed_distances_leave_the_queries_in_any_order_that_they_allow():
    """Where every query has a slot of its own at each distance, all keys are alike."""
    config = MqarConfig(context_len=80, n_pairs=4, distances=(8, 24, 40, 56))
    by_place, rising = collections.Counter(), 0
    for ids, targets in sequences(config, 4000):
        found = distances(ids, targets, config)
        in_order = [found[key][0] for key, _ in pairs_of(ids, config)]
        by_place.update(enumerate(in_order))
        rising += in_order == sorted(in_order)
    assert rising < 1000
    for place in range(4):
        statistic, critical = chi_square([by_place[place, d] for d in config.distances], [1000] * 4)
        assert statistic < critical


def test_one_distance():
    one = MqarConfig(context_len=32, n_pairs=8, distances=(16,))
    for _, targets in sequences(one, 20):
        assert np.flatnonzero(np.array(targets) >= 0).tolist() == list(range(16, 32, 2))


@pytest.mark.parametrize("steps", [(5, 6, 7), (5, 6), (5, 7, 8, 9)])
def test_crowded_distances_are_given_in_every_way_in_which_no_queries_meet(steps):
    config = MqarConfig(context_len=2 * (5 + max(steps)), n_pairs=5, distances=tuple(2 * s for s in steps))
    ways = {w for w in itertools.product(steps, repeat=5) if len({m + s for m, s in enumerate(w)}) == 5}
    seen = set()
    for ids, targets in sequences(config, 6000):
        found = distances(ids, targets, config)
        seen.add(tuple(found[key][0] // 2 for key, _ in pairs_of(ids, config)))
    assert seen == ways


REFUSED = [
    ({"fillers": "none"}, "unknown filler 'none'"),
    ({"n_pairs": 0}, "n_pairs is 0, but must be a whole number from 1 on"),
    ({"n_passes": 0}, "n_passes is 0"),
    ({"n_overwritten": -1}, "n_overwritten is -1"),
    ({"key_len": 0}, "key_len is 0"),
    ({"alpha": -0.1}, r"alpha is -0\.1"),
    ({"alpha": float("nan")}, "alpha is nan"),
    ({"n_overwritten": 5}, "n_overwritten is 5, but there are 4 keys"),
    ({"compositional": True}, "key_len is 1: set 2"),
    ({"compositional": True, "key_len": 2, "n_pairs": 7}, "the next that works is 8"),
    ({"compositional": True, "key_len": 2, "n_pairs": 1}, "the next that works is 4"),
    ({"distances": ()}, r"distances are \[\]"),
    ({"distances": (8, 8)}, r"distances are \[8, 8\]"),
    ({"distances": (6, 8, 9)}, r"distances hold \[6, 9\], .* use multiples of 2 from 8"),
    ({"distances": (8,), "alpha": 1.0}, "no power law is drawn"),
    ({"distances": (8,), "n_passes": 2}, "n_passes is 2, but fixed distances"),
]


@pytest.mark.parametrize(("fields", "message"), REFUSED)
def test_what_makes_no_sense_is_refused(fields, message):
    with pytest.raises(ConfigError, match=message):
        MqarConfig(**fields)


TIGHT = [
    {},
    {"n_passes": 3},
    {"n_overwritten": 3},
    {"key_len": 3},
    {"key_len": 2, "compositional": True, "n_pairs": 9},
    {"distances": (8, 30)},
    {"n_overwritten": 1, "distances": (10,)},
]


@pytest.mark.parametrize("fields", TIGHT)
@pytest.mark.parametrize("fillers", ["zero", "random"])
def test_the_smallest_context_and_vocabulary_named_work_and_are_the_smallest(fields, fillers):
    fields = {**fields, "fillers": fillers}
    for name, value in (("context_len", 1), ("vocab_size", 1)):
        with pytest.raises(ConfigError, match=f"^{name} is 1, .* need at least") as refused:
            MqarConfig(**{"context_len": 100, **fields, name: value})
        least = int(re.search(r"need at least (\d+)$", str(refused.value))[1])
        fields[name] = least
        generate(MqarConfig(**{"context_len": 100, **fields}), 3, np.random.default_rng(0))
        with pytest.raises(ConfigError, match=f"need at least {least}$"):
            MqarConfig(**{"context_len": 100, **fields, name: least - 1})


def test_an_odd_vocabulary_has_its_larger_half_in_values():
    config = MqarConfig(vocab_size=11, context_len=24, n_pairs=3, n_overwritten=3)
    for ids, _ in sequences(config, 20):
        assert {value for _, value in pairs_of(ids, config)} == {5, 6, 7, 8, 9, 10}


def test_too_few_sequences():
    with pytest.raises(ConfigError, match="n_sequences is -1"):
        generate(MqarConfig(), -1, np.random.default_rng(0))
