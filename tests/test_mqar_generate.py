"""MQAR data: each promise of the config, distributions, zoology's bytes, and the command."""

import collections
import hashlib
import itertools
import json

import numpy as np
import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from mqar_oracles import chi_square, configs, oracle_targets, successive_draws
from typer.testing import CliRunner

from recallgap.artifact import open_artifact
from recallgap.cli.mqar_data import data
from recallgap.errors import ArtifactError, ConfigError
from recallgap.mqar import MqarConfig, generate
from recallgap.mqar.data import write_data
from recallgap.mqar.generate import with_answers
from recallgap.mqar.zoology_preset import generate_like_zoology


def rng(seed=0):
    return np.random.default_rng(seed)


@settings(max_examples=300)
@given(configs(), st.integers(0, 3), st.integers(0, 1000))
def test_every_promise_of_every_config(config, n_sequences, seed):
    ids_BT, targets_BT = generate(config, n_sequences, rng(seed))
    again_BT, _ = generate(config, n_sequences, rng(seed))
    assert again_BT.tobytes() == ids_BT.tobytes()
    assert ids_BT.shape == targets_BT.shape == (n_sequences, config.context_len)
    assert ids_BT.dtype == targets_BT.dtype == np.int64
    slot, half = config.key_len + 1, config.vocab_size // 2
    for ids, targets in zip(ids_BT.tolist(), targets_BT.tolist(), strict=True):
        assert targets == oracle_targets(ids, config), "each query has its latest value, nothing else has one"
        queries = [t for t, target in enumerate(targets) if target != -100]
        assert len(queries) == config.n_pairs * config.n_passes
        pairs = [ids[t : t + slot] for t in range(0, config.n_written * slot, slot)]
        keys, values = [tuple(pair[:-1]) for pair in pairs], [pair[-1] for pair in pairs]
        assert len(set(keys)) == config.n_pairs and len(set(values)) == len(values)
        asked = collections.Counter(tuple(ids[t - config.key_len + 1 : t + 1]) for t in queries)
        assert asked == dict.fromkeys(keys, config.n_passes)
        key_tokens = {token for key in keys for token in key}
        assert all(1 <= token < half for token in key_tokens)
        assert all(half <= value < config.vocab_size for value in values)
        in_query = {t - i for t in queries for i in range(config.key_len)}
        fillers = [ids[t] for t in range(config.n_written * slot, len(ids)) if t not in in_query]
        if config.fillers == "zero":
            assert set(fillers) <= {0}
        else:
            assert len(set(fillers)) == len(fillers) and not set(fillers) & {0, *key_tokens, *values}


def test_by_hand():
    config = MqarConfig(vocab_size=12, context_len=8, n_pairs=1)
    ids_BT, targets_BT = generate(config, 500, rng())
    key, value = ids_BT[:, 0], ids_BT[:, 1]
    assert set(key) == {1, 2, 3, 4, 5} and set(value) == {6, 7, 8, 9, 10, 11}
    at = targets_BT.argmax(axis=1)
    assert set(at) == {2, 4, 6}, "a query stands at the start of a slot after the pair"
    assert np.array_equal(targets_BT[np.arange(500), at], value)
    assert np.array_equal(with_answers(ids_BT, targets_BT)[np.arange(500), at + 1], value)


def test_other_seeds_and_later_draws_differ_and_blocks_do_not_repeat():
    config = MqarConfig(context_len=4096, n_pairs=4)  # 64 sequences a block
    same = rng(1)
    first, later, other = (generate(config, 200, r)[0] for r in (same, same, rng(2)))
    assert not np.array_equal(first, later) and not np.array_equal(first, other)
    assert len({row.tobytes() for row in first}) == 200


@pytest.mark.parametrize("alpha", [0.0, 0.01, 0.5, 1.0, 2.0])
def test_queries_are_drawn_by_the_power_law(alpha):
    """The first key's slot by itself, and two of six slots in the order of their drawing."""
    config = MqarConfig(context_len=66, n_pairs=1, alpha=alpha)
    slots = (generate(config, 40_000, rng(3))[1] >= 0).argmax(axis=1) // 2 - 1
    weight = np.arange(1, 33) ** (alpha - 1.0)
    statistic, critical = chi_square(np.bincount(slots, minlength=32), 40_000 * weight / weight.sum())
    assert statistic < critical

    config = MqarConfig(context_len=16, n_pairs=2, alpha=alpha)
    ids_BT, targets_BT = generate(config, 40_000, rng(4))
    found = collections.Counter()
    for ids, targets in zip(ids_BT.tolist(), targets_BT.tolist(), strict=True):
        where = {ids[t]: t // 2 - 2 for t in range(4, 16) if targets[t] >= 0}
        found[where[ids[0]], where[ids[2]]] += 1
    chances = successive_draws((np.arange(1, 7) ** (alpha - 1.0)).tolist(), 2)
    assert len(chances) == 30
    statistic, critical = chi_square([found[d] for d in chances], [40_000 * p for p in chances.values()])
    assert statistic < critical


def test_a_wrong_power_law_is_found():
    """The chi-square test sees alpha = 0.1 in place of 0.01."""
    config = MqarConfig(context_len=66, n_pairs=1, alpha=0.1)
    slots = (generate(config, 40_000, rng(3))[1] >= 0).argmax(axis=1) // 2 - 1
    weight = np.arange(1, 33) ** (0.01 - 1)
    statistic, critical = chi_square(np.bincount(slots, minlength=32), 40_000 * weight / weight.sum())
    assert statistic > critical


def test_keys_values_and_fillers_are_uniform():
    """Ordered pairs of keys, of values, and of the first and last filler, in a small vocabulary."""
    config = MqarConfig(vocab_size=14, context_len=12, n_pairs=2, fillers="random")
    ids_BT, targets_BT = generate(config, 60_000, rng(5))
    filler_BT = targets_BT < 0
    filler_BT[:, :4] = False
    fillers_Bn = ids_BT[filler_BT].reshape(60_000, -1)[:, [0, -1]]
    for two_Bn, tokens in ((ids_BT[:, [0, 2]], range(1, 7)), (ids_BT[:, [1, 3]], range(7, 14))):
        check_pairs(two_Bn, dict.fromkeys(itertools.permutations(tokens, 2), 1))
    # 4 of 6 tokens of the first half are left for fillers, and 5 of 7 of the second.
    left = {x: (4, 6) if x < 7 else (5, 7) for x in range(1, 14)}
    weights = {
        (x, y): left[x][0] / left[x][1] * (left[y][0] - same) / (left[y][1] - same)
        for x, y in itertools.permutations(left, 2)
        for same in [left[x] == left[y]]
    }
    check_pairs(fillers_Bn, weights)


def check_pairs(two_Bn, weights):
    found = collections.Counter(map(tuple, two_Bn.tolist()))
    total = sum(weights.values())
    assert set(found) == set(weights)
    statistic, critical = chi_square(
        [found[pair] for pair in weights], [len(two_Bn) * w / total for w in weights.values()]
    )
    assert statistic < critical


# The first 128 bits of sha256(inputs, then labels) of zoology's multiquery_ar at commit d88d6f5, numpy 2.4.6
# and torch 2.13, called with num_examples=n, power_a=alpha, and after torch.manual_seed(seed + 1):
#   out = multiquery_ar(V, n, N, seed, power_a=alpha, num_kv_pairs=D, random_non_queries=fillers == "random")
#   hashlib.sha256(out.inputs.numpy().tobytes() + out.labels.numpy().tobytes()).hexdigest()[:32]
GOLDEN = {
    (8192, 64, 4, 0.01, 500, 0, "zero"): "076620f09046c689d41c806e8db3542b",
    (8192, 64, 4, 0.01, 500, 0, "random"): "de2add599996cd5e94cd766d6778b5dc",
    (8192, 512, 64, 0.01, 100, 7, "zero"): "7c8783443026f55ebce1dfcdd6391f17",
    (8192, 512, 64, 0.01, 100, 7, "random"): "6106eb1c26e241a8415fc75a3cb96787",
    (256, 64, 16, 1.0, 200, 5, "zero"): "73615ad80dedd484bcefcd2c0f09ab46",
    (65, 64, 16, 0.5, 200, 99, "random"): "83c5c1ad5fa3e32d610bc46620699496",
}


@pytest.mark.parametrize("case", GOLDEN)
def test_the_preset_gives_the_bytes_of_zoology(case):
    V, N, D, alpha, n, seed, fillers = case
    config = MqarConfig(vocab_size=V, context_len=N, n_pairs=D, alpha=alpha, fillers=fillers)
    ids_BT, targets_BT = generate_like_zoology(config, n, seed=seed, torch_seed=seed + 1)
    assert (ids_BT.dtype, targets_BT.dtype) == (np.int64, np.int64)
    assert hashlib.sha256(ids_BT.tobytes() + targets_BT.tobytes()).hexdigest()[:32] == GOLDEN[case]


def test_the_preset_refuses_what_zoology_cannot_make():
    def refused(message, n=1, seed=0, torch_seed=None, **fields):
        with pytest.raises(ConfigError, match=message):
            generate_like_zoology(MqarConfig(**fields), n, seed=seed, torch_seed=torch_seed)

    refused("its generator has no variants", n_passes=2)
    refused("alpha is 0, where", alpha=0)
    refused("the smallest that works are 66 and 8192", context_len=65)
    refused("the smallest that works are 64 and 65", vocab_size=64)
    refused("n_sequences is 0", n=0)
    refused("the seed is -1", seed=-1)
    refused("name torch_seed too", fillers="random")


def run(*words):
    app = typer.Typer()
    app.command()(data)
    result = CliRunner().invoke(app, list(map(str, words)), standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result.stdout


def test_the_command(tmp_path):
    out = tmp_path / "data"
    options = ["--sequences", 20, "--vocab-size", 300, "--context-len", 40, "--pairs", 3, "--seed", 5]
    line = (
        f"MQAR data {out}: 20 sequences of 40 tokens, 3 pairs each, 60 queries; vocabulary 300, zero fillers"
    )
    assert run("-o", out, *options) == f"{line}, seed 5\n"
    ids_BT, targets_BT = generate(MqarConfig(vocab_size=300, context_len=40, n_pairs=3), 20, rng(5))
    assert np.array_equal(np.load(out / "ids.npy"), ids_BT)
    assert np.array_equal(np.load(out / "targets.npy"), targets_BT)
    made = open_artifact(out, "mqar-data")
    assert (made.config["n_sequences"], made.config["seed"], made.config["alpha"]) == (20, 5, 0.01)
    before = (out / "run.json").read_text()
    found = json.loads(run("-o", out, *options, "--json"))
    assert (found["n_tokens"], found["fingerprint"]) == (800, made.fingerprint)
    assert (out / "run.json").read_text() == before, "nothing was made again"
    with pytest.raises(ArtifactError, match=r"config\.seed is 5 there, 6 now"):
        run("-o", out, *options[:-1], 6)


def test_all_options_reach_the_data(tmp_path):
    words = ["--overwritten", 1, "--key-len", 2, "--compositional", "--distances", "15,21", "--preset", "own"]
    run("-o", tmp_path / "a", "--sequences", 3, "--fillers", "random", *words)
    config = MqarConfig(fillers="random", n_overwritten=1, key_len=2, compositional=True, distances=(15, 21))
    assert np.array_equal(np.load(tmp_path / "a" / "ids.npy"), generate(config, 3, rng())[0])
    run("-o", tmp_path / "b", "--sequences", 3, "--alpha", 0.5, "--passes", 2)
    config = MqarConfig(alpha=0.5, n_passes=2)
    assert np.array_equal(np.load(tmp_path / "b" / "ids.npy"), generate(config, 3, rng())[0])
    words = ["--preset", "zoology", "--fillers", "random", "--seed", 9]
    run("-o", tmp_path / "c", "--sequences", 3, *words)
    expected = generate_like_zoology(MqarConfig(fillers="random"), 3, seed=9, torch_seed=9)[0]
    assert np.array_equal(np.load(tmp_path / "c" / "ids.npy"), expected)


def test_what_is_no_number_or_generator_is_refused():
    for wrong in ({"n_pairs": 2.5}, {"context_len": "64"}, {"vocab_size": None}):
        with pytest.raises(ConfigError, match="must be a whole number from 1 on"):
            MqarConfig(**wrong)
    with pytest.raises(ConfigError, match="alpha is None"):
        MqarConfig(alpha=None)
    with pytest.raises(ConfigError, match="rng is 7, but a generator is needed"):
        generate(MqarConfig(), 1, 7)


def test_what_the_command_refuses(tmp_path):
    with pytest.raises(ConfigError, match="0 sequences were asked for"):
        run("-o", tmp_path / "d", "--sequences", 0)
    with pytest.raises(ConfigError, match="the seed is 4294967296"):
        run("-o", tmp_path / "d", "--seed", 1 << 32)
    with pytest.raises(ConfigError, match=r"unknown preset 'zoo'\. Did you mean 'zoology'"):
        write_data(MqarConfig(), 1, tmp_path / "d", seed=0, preset="zoo")
    with pytest.raises(ConfigError, match="reading --distances '8;16'"):
        run("-o", tmp_path / "d", "--distances", "8;16")
    assert not list(tmp_path.iterdir())
