"""Distinct interaction distances of real contexts against a count by hand, shard by shard."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_recall_labelling import labelled
from theory_kernel_oracles import oracle_needed

from recallgap.theory.distances import distances_needed

SHIFTS = (1, 2, 3)
ROWS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4), st.booleans()), max_size=30)


class Shards:
    """A token table of files, as far as it is read here."""

    def __init__(self, folder, *tables):
        self.artifact, self.paths = self, []
        for number, rows in enumerate(tables):
            contexts, distances, hits = zip(*rows, strict=True) if rows else ((), (), ())
            table = {
                "context": pa.array(contexts, pa.uint32()),
                "distance": pa.array(distances, pa.uint32()),
                "ar_hit": pa.array(hits, pa.bool_()),
            }
            self.paths.append(folder / f"tokens-{number:05d}.parquet")
            pq.write_table(pa.table(table), self.paths[-1])

    def files(self, prefix):
        assert prefix == "tokens-"
        return self.paths


@given(ROWS, ROWS)
def test_numbers_are_those_counted_by_hand(tmp_path_factory, first, second):
    """Contexts ascend and none lies in two shards, as in a token table; a hit has a distance."""
    first = sorted(first)
    second = sorted((context + 4, distance, hit) for context, distance, hit in second)
    first, second = ([(c, d, h and d > 0) for c, d, h in rows] for rows in (first, second))
    labels = Shards(tmp_path_factory.mktemp("labels"), first, second)
    rows = distances_needed(labels, shifts=SHIFTS, quantiles=(0.5, 1.0))
    contexts, distances, hits = zip(*(first + second), strict=True) if first + second else ((), (), ())
    repeated = [distance > 0 for distance in distances]
    for row, name, counted in zip(rows, ("AR hits", "repeated bigrams"), (hits, repeated), strict=True):
        needed, covered = oracle_needed(contexts, distances, counted, SHIFTS)
        values = sorted(needed.values())
        assert (row["tokens"], row["contexts"], row["n"]) == (name, len(values), sum(counted))
        assert row["mean"] == pytest.approx(np.mean(values) if values else 0)
        assert row["quantiles"][1.0] == max(values, default=0)
        assert row["quantiles"][0.5] == (values[(len(values) + 1) // 2 - 1] if values else 0)
        shares = [x / sum(counted) if sum(counted) else 1.0 for x in covered]
        assert list(row["covered"].values()) == pytest.approx(shares)


def test_a_labelled_corpus_is_read(tmp_path):
    """1 2 1 2 1 2 3 1 2: three bigrams repeat 2 tokens back and one 3; only `1 2` is rare in training."""
    train = [([2, 1, 2, 1, 2, 1], "a")]
    labels = labelled(tmp_path, [([1, 2, 1, 2, 1, 2, 3, 1, 2], "a")], train, max_train_count=2)
    assert labels.column("distance").tolist() == [0, 0, 0, 2, 2, 2, 0, 0, 3]
    hits, repeated = distances_needed(labels, shifts=(1, 2), quantiles=(1.0,))
    assert (hits["n"], hits["quantiles"], hits["covered"]) == (3, {1.0: 2}, {1: 2 / 3, 2: 1.0})
    assert (repeated["n"], repeated["quantiles"], repeated["covered"]) == (4, {1.0: 2}, {1: 0.75, 2: 1.0})
