"""The hash table of n-grams is exact: any keys, any order, no false match."""

import errno
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recallgap.counts.store import append_array
from recallgap.counts.table import BORDER, EMPTY, MULTIPLIER, HashTable, NGramTable

MAX_TOKEN = (1 << 31) - 1


def sorted_keys(values):
    return np.array(sorted(values), dtype=np.uint64)


@given(
    st.sets(st.integers(0, (1 << 63) - 1), max_size=60), st.lists(st.integers(0, (1 << 63) - 1), max_size=20)
)
def test_it_holds_what_was_stored_and_nothing_else(stored, others):
    keys_K = sorted_keys(stored)
    table = HashTable(keys_K, keys_K * np.uint64(3))
    queries = np.array([*sorted(stored), *others], dtype=np.uint64)
    slots = table.find(queries)
    for key, slot in zip(queries.tolist(), slots.tolist(), strict=True):
        assert (slot != EMPTY) == (key in stored)
        if key in stored:
            assert table.slots_S2[slot].tolist() == [key, 3 * key % (1 << 64)]


def test_keys_that_all_fall_into_the_last_line():
    """They fill it, run over its end and around to the first line; an absent one among them is not found."""
    inverse = pow(int(MULTIPLIER), -1, 1 << 64)
    keys = [((1 << 64) - 1 - n) * inverse % (1 << 64) for n in range(40)]
    stored, absent = keys[:30], keys[30:]
    table = HashTable(np.array(stored, dtype=np.uint64), np.zeros(30, np.uint64))
    assert (table.find(np.array(stored, dtype=np.uint64)) == table.slot_of_K).all()
    assert len(set(table.slot_of_K.tolist())) == 30
    assert (table.find(np.array(absent, dtype=np.uint64)) == EMPTY).all()
    assert 0 in table.slot_of_K


def test_slots_share_cache_lines_by_four():
    for n in (0, 5, 1000):
        assert HashTable(np.arange(n, dtype=np.uint64), np.zeros(n, np.uint64)).slots_S2.ctypes.data % 64 == 0


@pytest.mark.parametrize("token", [0, 65535, 65536, MAX_TOKEN])
def test_extreme_tokens(token):
    """Bigrams and trigrams of the largest ids keep their counts apart."""
    bigrams = sorted_keys({token << 32 | token, token << 32 | 7, 7 << 32 | token})
    middle = bigrams.tolist().index(token << 32 | token)
    table = NGramTable({2: bigrams, 3: sorted_keys({middle << 32 | token, middle << 32 | 7})})
    counter = table.counter()
    stream = np.array([token, token, token, 7, token, 5, BORDER, BORDER], dtype=np.uint32)
    table.add(counter, stream, 6)
    counts = dict(zip(bigrams.tolist(), table.counted(counter, 2).tolist(), strict=True))
    assert counts == {token << 32 | token: 2, token << 32 | 7: 1, 7 << 32 | token: 1}
    assert sorted(table.counted(counter, 3).tolist()) == [1, 1]
    assert table.counter()[0][:, 1].sum() == 0, "counters do not share their slots"


def test_a_marked_token_ends_no_ngram():
    table = NGramTable({1: sorted_keys({4}), 2: sorted_keys({4 << 32 | 4})})
    counter = table.counter()
    table.add(counter, np.array([4, 4 | BORDER, 4, BORDER], dtype=np.uint32), 3)
    assert table.counted(counter, 1).tolist() == [3], "it still starts one"
    assert table.counted(counter, 2).tolist() == [1]


def test_a_batch_is_no_border():
    """More starts than one batch holds, with hits and misses mixed."""
    random = np.random.default_rng(0)
    tokens = random.integers(0, 9, 20_000).astype(np.uint32)
    table = NGramTable({2: sorted_keys({3 << 32 | 3, 8 << 32 | 1})})
    counter = table.counter()
    table.add(counter, np.append(tokens, BORDER), len(tokens))
    pairs = tokens[:-1].astype(int) * 10 + tokens[1:]
    assert table.counted(counter, 2).tolist() == [(pairs == 33).sum(), (pairs == 81).sum()]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_is_told_with_its_number():
    with pytest.raises(OSError) as caught, open("/dev/full", "wb") as file:
        append_array(file, np.arange(100_000))
    assert caught.value.errno == errno.ENOSPC
