"""Tables: texts a reader sees, golden for a fixed case; raw numbers for scripts."""

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
from gap_cases import random_columns, write_case, write_labels, write_losses
from oracles import oracle_markdown_cells

from recallgap.report.markup import markdown
from recallgap.report.tables import aligned, csv_text, main_rows, main_table, slice_rows, slice_table
from recallgap.report.text import compact, perplexity, share, shown
from recallgap.report.text import gap as gap_text
from recallgap.slices import compare
from recallgap.slices.intervals import Interval, ShareSet

GOLDEN = Path(__file__).parent / "golden" / "gap_tables.md"


def hand_made(folder):
    """Three documents of two AR hits and three other scored tokens each, with round losses.

    By hand: the baseline's loss is 11/5; the gap 3.6/15, of which hits have 3.4/15; by document 0.2, 0.26 and
    0.26, so its jackknife error is 0.02 and its interval 0.24 -+ 4.3027 * 0.02.
    """
    columns = random_columns(0, [6, 6, 6]) | {"ar_hit": np.tile([False, False, True, True, False, False], 3)}
    columns["position"] = np.tile(np.arange(6), 3)
    base = np.tile([np.nan, 3.0, 1.0, 1.0, 3.0, 3.0], 3)
    gaps = np.array([0, 0.0, 0.5, 0.5, 0.0, 0.0, 0, 0.0, 0.6, 0.6, 0.1, 0.0, 0, 0.1, 0.7, 0.5, 0.0, 0.0])
    labels = write_labels(folder / "labels", columns)
    paths = [write_losses(folder / name, x) for name, x in (("base", base), ("small", base + gaps))]
    return compare(paths[0], paths[1:], labels)


@pytest.fixture(scope="module")
def gap(tmp_path_factory):
    folder = tmp_path_factory.mktemp("case")
    _, labels, (base, small) = write_case(folder, base=(1.0, 3.0), small=(2.0, 3.1))
    return compare(base, [small], labels)


def test_tables_are_as_ever(tmp_path):
    gap = hand_made(tmp_path)
    assert markdown([main_table(gap), slice_table(gap, "recall", model=1)]) == GOLDEN.read_text()


def test_the_terminal_table_puts_intervals_below(gap):
    lines = aligned(main_table(gap)).splitlines()
    assert len(lines) == 5
    assert max(map(len, lines)) <= 125
    assert lines[1].split()[:4] == ["base", "-", "13.77", "(2.62)"]
    assert lines[2].strip().startswith("[12.01, 15.80]")


def test_cap_shares_changes_the_text_alone(gap):
    before = json.dumps(gap.to_dict())
    raw, capped = (main_table(gap, cap_shares=cap).rows[1][-1] for cap in (False, True))
    assert raw != capped and capped.endswith(", 100.0]")
    assert json.dumps(gap.to_dict()) == before


SHARES = [
    (ShareSet(0.5, "interval", 0.4, 0.6), False, "50.0 % [40.0, 60.0]"),
    (ShareSet(1.3, "interval", 0.9, 1.8), False, "130.0 % [90.0, 180.0]"),
    (ShareSet(1.3, "interval", 0.9, 1.8), True, "100.0 % [90.0, 100.0]"),
    (ShareSet(-0.2, "interval", -0.4, 0.1), True, "0.0 % [0.0, 10.0]"),
    (ShareSet(-1e-5, "interval", -1e-4, 1e-4), False, "0.0 % [0.0, 0.0]"),
    (ShareSet(0.5, "outside", -3.0, -1.0), False, "undefined"),
    (ShareSet(None, "everything"), False, "undefined"),
    (ShareSet(None, "unknown"), False, "undefined"),
    (ShareSet(0.7, "unknown"), False, "70.0 %"),
]


@pytest.mark.parametrize(("found", "cap", "text"), SHARES)
def test_shares_are_said_as_they_are(found, cap, text):
    assert share(found, cap=cap) == text


def test_perplexities_of_any_size_are_written():
    assert perplexity(Interval(None)) == "-"
    assert perplexity(Interval(2.0)) == "7.39 (2.00)"
    assert perplexity(Interval(9.0, 8.0, 10.0)) == "8,103 (9.00) [2,981, 22,026]"
    assert perplexity(Interval(14.0)) == "1.2e+06 (14.00)"
    assert gap_text(Interval(-1e-6)) == "+0.0000"
    assert perplexity(Interval(5000.0)).endswith("(5000.00)")


def test_names_and_counts_are_made_readable():
    assert shown("a\x1b[31m\tb") == "a [31m b"
    assert [compact(n) for n in (0, 7, 999, 1000, 12_345, 99_999, 134_515_008, 2.5e9)] == [
        "0", "7", "999", "1k", "12k", "100k", "135M", "2.5G",
    ]  # fmt: skip


def test_csv_and_json_hold_the_raw_numbers(gap):
    rows = main_rows(gap)
    read = list(csv.DictReader(io.StringIO(csv_text(rows))))
    assert [row["model"] for row in read] == ["base", "small"]
    assert float(read[1]["ar_hit_share"]) == gap.share("ar_hit").estimate
    assert float(read[1]["gap_low"]) == gap.estimate("gap").low
    assert (
        float(read[0]["ar_hit_perplexity"])
        == gap.estimate("perplexity", "recall", "ar_hit", model=0).estimate
    )
    assert read[0]["gap"] == "" and rows[0]["gap"] is None
    json.loads(json.dumps(rows, allow_nan=False))


def test_every_slice_is_a_csv_row(gap):
    rows = slice_rows(gap)
    assert len(rows) == 2 * sum(len(gap.slices(family)) for family in gap.record["families"])
    read = list(csv.DictReader(io.StringIO(csv_text(rows))))
    contributions = [
        float(r["contribution"]) for r in read if r["family"] == "domain" and r["model"] == "small"
    ]
    assert sum(contributions) == pytest.approx(gap.estimate("gap").estimate, abs=1e-12)


def test_slices_without_tokens_are_left_out_of_the_page(gap):
    names = [row[0] for row in slice_table(gap, "train_count", model=1).rows]
    held = [name for name, part in gap.slices("train_count").items() if part["n"]]
    assert names == held and len(held) < len(gap.slices("train_count"))


def test_markdown_cells_survive_any_name():
    table = main_table_like(
        ["a|b", "x\\", "`code`", "<script>alert(1)</script>", "[x](javascript:1)", "*b* _i_"]
    )
    (line,) = markdown([table]).splitlines()[2:]
    assert oracle_markdown_cells(line) == list(map(str, table.rows[0]))


def main_table_like(cells):
    from recallgap.report.tables import Table

    return Table(["h"] * len(cells), [cells])
