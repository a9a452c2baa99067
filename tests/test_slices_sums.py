"""Every family is a partition, and sums equal a loop over tokens, however files are cut."""

from collections import Counter

import numpy as np
import pytest
from gap_cases import random_columns, random_losses, write_labels, write_losses
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import oracle_document_sums, oracle_slice

from recallgap.recall import open_labels
from recallgap.slices import SLICES, open_losses
from recallgap.slices.blocks import dictionary_values, read_blocks
from recallgap.slices.sums import scan


def opened(folder, columns, losses, rows_per_file):
    labels = open_labels(write_labels(folder / "labels", columns, rows_per_file=rows_per_file))
    models = [
        open_losses(write_losses(folder / f"m{k}", x, rows_per_file=rows_per_file + k))
        for k, x in enumerate(losses)
    ]
    return labels, models


def assert_equal_to_loop(name, sums, family, expected):
    documents = sorted({document for document, _ in expected})
    found = np.concatenate([sums.n_DK[None], sums.loss_MDK])
    literal = np.zeros_like(found)
    for (document, slice_name), cell in expected.items():
        column = [part.name for part in family.slices].index(slice_name)
        literal[:, documents.index(document), column] = cell
    np.testing.assert_allclose(found, literal, rtol=1e-12, atol=1e-12, err_msg=name)


@settings(max_examples=12, deadline=None)
@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=12).filter(sum),
    st.integers(20, 90),
    st.integers(0, 1000),
)
def test_sums_of_every_family_are_those_of_a_loop(tmp_path_factory, lengths, rows_per_file, seed):
    columns = random_columns(seed, lengths, domains=("b", "", "a"))
    losses = [random_losses(seed + k, columns) for k in (1, 2)]
    losses[1][::5] = np.nan
    labels, models = opened(tmp_path_factory.mktemp("sums"), columns, losses, rows_per_file)
    families = {name: define(labels) for name, define in SLICES.items()}
    found = scan(labels, models, families, common=True)
    for name, family in families.items():
        expected = oracle_document_sums(columns, losses, lambda token, name=name: oracle_slice(name, token))
        assert_equal_to_loop(name, found.sums[name], family, expected)
    used = ~np.isnan(losses[0]) & ~np.isnan(losses[1])
    hits = Counter(columns["distance"][used & columns["ar_hit"]].tolist())
    assert {d: n for d, n in enumerate(found.hits_by_distance) if n} == hits
    assert found.n_scored == [int((~np.isnan(x)).sum()) for x in losses]
    assert found.n_used == int(used.sum())


def test_a_document_in_many_blocks_is_one_sampling_unit(tmp_path, monkeypatch):
    columns = random_columns(0, [500, 3, 700])
    labels, models = opened(tmp_path, columns, [random_losses(1, columns)], 90)
    families = {"recall": SLICES["recall"](labels)}
    whole = scan(labels, models, families, common=False).sums["recall"]
    monkeypatch.setattr("recallgap.slices.blocks.read_blocks.__defaults__", (64,))
    monkeypatch.setattr("recallgap.slices.losses.Losses.blocks.__defaults__", (64,))
    cut = scan(labels, models, families, common=False).sums["recall"]
    assert len(cut.n_DK) == 3
    assert cut.n_DK.tolist() == whole.n_DK.tolist()
    np.testing.assert_allclose(cut.loss_MDK, whole.loss_MDK, rtol=1e-12)


@pytest.mark.parametrize("name", SLICES)
def test_every_family_is_a_partition_with_names_told_apart(name, tmp_path):
    columns = random_columns(3, [200, 50, 400])
    labels = open_labels(write_labels(tmp_path / "labels", columns))
    family = SLICES[name](labels)
    names = [part.name for part in family.slices]
    assert len(set(names)) == len(names)
    codes = family.codes(*(label_values(labels, columns, column) for column in family.columns))
    assert codes.shape == columns["document"].shape
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    assert [names[code] for code in codes] == [oracle_slice(name, row) for row in rows]


def label_values(labels, columns, column):
    if column != "domain":
        return columns[column].astype({"ar_hit": bool, "train_count": np.uint64}.get(column, np.uint32))
    names = dictionary_values(labels.artifact.files("tokens-"), column)
    return np.array([names.index(value) for value in columns[column]])


def test_bins_meet_at_their_borders(tmp_path):
    columns = random_columns(0, [12]) | {
        "train_count": np.array([0, 1, 2, 3, 4, 9, 10, 31, 32, 10**6 - 1, 10**6, 10**12]),
        "distance": np.array([1, 2, 3, 4, 7, 8, 15, 16, 31, 32, 63, 0]),
        "ar_hit": np.arange(12) < 11,
    }
    labels = open_labels(write_labels(tmp_path / "labels", columns))
    count, distance = SLICES["train_count"](labels), SLICES["distance"](labels)
    found = [count.slices[k].name for k in count.codes(columns["train_count"].astype(np.uint64))]
    assert found[:9] == ["0", "1", "2-3", "2-3", "4-9", "4-9", "10-31", "10-31", "32-99"]
    assert found[9:] == ["316,228-999,999", "1,000,000 and more", "1,000,000 and more"]
    codes = distance.codes(columns["ar_hit"], columns["distance"].astype(np.uint32))
    names = ["1", "2-3", "2-3", "4-7", "4-7", "8-15", "8-15", "16-31", "16-31", "32-63", "32-63"]
    assert [distance.slices[k].name for k in codes] == [*names, "not a hit"]


@pytest.mark.parametrize("rows", [1, 7, 10, 1000])
def test_blocks_have_the_same_rows_whatever_the_files(tmp_path, rows):
    loss_T = np.arange(137, dtype=np.float32)
    loss_T[5] = np.nan
    losses = open_losses(write_losses(tmp_path / "m", loss_T, rows_per_file=10))
    blocks = list(losses.blocks(rows))
    assert [len(block) for block in blocks] == [rows] * (137 // rows) + [137 % rows] * (137 % rows > 0)
    np.testing.assert_array_equal(np.concatenate(blocks), loss_T)
    np.testing.assert_array_equal(losses.loss_T, loss_T)
    assert losses.loss_T.dtype == np.float32


def test_blocks_of_texts_share_one_dictionary(tmp_path):
    columns = random_columns(0, [30, 30, 30, 30], domains=("z", "a", "m"))
    labels = open_labels(write_labels(tmp_path / "labels", columns, rows_per_file=31))
    tables = list(read_blocks(labels.artifact.files("tokens-"), ["domain"], 47))
    assert [value for table in tables for value in table["domain"].to_pylist()] == columns["domain"].tolist()
    assert dictionary_values(labels.artifact.files("tokens-"), "domain") == ["a", "m", "z"]
