"""The report folder: figures that are the same bytes again, a page that says everything and runs nothing."""

import html.parser
import json
import re
import xml.etree.ElementTree

import matplotlib.image
import numpy as np
import pytest
from gap_cases import random_columns, random_losses, write_case, write_labels, write_losses

from recallgap.errors import ArtifactError
from recallgap.report import write_report
from recallgap.report.figures import FIGURES, draw
from recallgap.slices import compare

EVIL = '<script>alert("x")</script>|**b**\n# h $a$ [l](javascript:1)'


@pytest.fixture(scope="module")
def gap(tmp_path_factory):
    folder = tmp_path_factory.mktemp("case")
    columns, labels, (base, small) = write_case(folder, base=(1.0, 3.0), small=(2.0, 3.1))
    windowed = write_losses(folder / "w", random_losses(5, columns, hit_loss=2.5), config={"window": 16})
    return compare(base, [small, windowed], labels)


@pytest.fixture(scope="module")
def report(gap, tmp_path_factory):
    return write_report(gap, tmp_path_factory.mktemp("report") / "report").path


def test_figures_are_pictures_with_something_in_them(report):
    for name in FIGURES:
        pixels = matplotlib.image.imread(report / f"{name}.png")
        assert pixels.shape[0] >= 500 and pixels.shape[1] >= 800
        assert 0.01 < (pixels[..., :3].min(axis=-1) < 0.9).mean() < 0.6
        svg = xml.etree.ElementTree.parse(report / f"{name}.svg").getroot()
        assert len(list(svg.iter())) > 100


def test_the_same_gap_gives_the_same_bytes(gap, report, tmp_path):
    again = write_report(gap, tmp_path / "report").path
    for path in report.iterdir():
        if path.name != "run.json":
            assert path.read_bytes() == (again / path.name).read_bytes(), path.name


def test_a_users_matplotlib_settings_change_nothing(gap, report, tmp_path):
    with matplotlib.rc_context({"font.size": 20, "axes.facecolor": "red", "svg.hashsalt": "x"}):
        again = write_report(gap, tmp_path / "report").path
    for name in FIGURES:
        assert (report / f"{name}.svg").read_bytes() == (again / f"{name}.svg").read_bytes()


def test_a_report_is_written_once(gap, report, monkeypatch):
    monkeypatch.setattr("recallgap.report.write._write_files", None)
    assert write_report(gap, report).path == report
    with pytest.raises(ArtifactError, match="cap_shares is false there, true now"):
        write_report(gap, report, cap_shares=True)


def test_the_page_says_what_was_measured_and_where_from(gap, report):
    page = (report / "report.md").read_text()
    assert page.startswith("# small, w against base\n")
    assert "8,560 tokens of 40 documents are scored" in page
    assert "at most 50 times in the 1,000,000 training tokens" in page
    assert "w sees at most 16 tokens" in page
    for warning in gap.warnings:
        assert warning in page
    for origin in (gap.record["labels"], *gap.models):
        assert origin["fingerprint"] in page
    assert gap.fingerprint in page
    for name in FIGURES:
        assert f"({name}.png)" in page and (report / f"{name}.png").exists()
    assert len(re.findall(r"^## By ", page, re.MULTILINE)) == 4


class Tags(html.parser.HTMLParser):
    """Every tag with its attributes, and the text outside of style."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


def test_the_html_page_is_whole_alone_and_runs_nothing(report):
    page = Tags((report / "report.html").read_text())
    names = [tag for tag, _ in page.tags]
    assert names.count("svg") == 3 and names.count("table") == 1 + 5 * 2 + 1
    assert not {"script", "link", "img", "iframe", "object"} & set(names)
    for tag, attributes in page.tags:
        for key, value in attributes.items():
            assert not key.startswith("on"), (tag, key)
            if key in ("href", "xlink:href", "src"):
                assert value.startswith("#"), (tag, value)
    assert "8,560 tokens of 40 documents are scored" in page.text


@pytest.mark.filterwarnings("ignore:Glyph")
def test_names_from_outside_are_text_and_nothing_else(tmp_path):
    columns = random_columns(0, [100] * 40, domains=(EVIL, "", "plain"))
    labels = write_labels(tmp_path / "labels", columns)
    paths = [
        write_losses(tmp_path / f"m{k}", random_losses(k, columns), config={"model": name, "window": 32})
        for k, name in enumerate((EVIL, "$\\bad{$ \u4e2d" + "y" * 80))
    ]
    gap = compare(paths[0], paths[1:], labels)
    report = write_report(gap, tmp_path / "report").path
    page = Tags((report / "report.html").read_text())
    assert "script" not in [tag for tag, _ in page.tags]
    assert EVIL.replace("\n", " ") in page.text and "(no name)" in page.text
    lines = (report / "report.md").read_text().splitlines()
    assert not any("<script" in line or line.startswith("# h") for line in lines)
    rows = [line for line in lines if line.startswith("|")]
    widths = [len(re.findall(r"(?<!\\)\|", line)) for line in rows]
    assert set(widths) == {9, 10, 3}
    for name in FIGURES:
        xml.etree.ElementTree.parse(report / f"{name}.svg")


def test_a_single_checkpoint_has_a_report_without_gap(tmp_path):
    _, labels, (base,) = write_case(tmp_path, base=(1, 3))
    report = write_report(compare(base, [], labels), tmp_path / "report")
    names = set(report.meta["files"])
    assert "gap-by-distance.png" not in names and {"train-count.png", "hit-distance.svg"} <= names
    page = (report.path / "report.md").read_text()
    assert page.startswith("# AR perplexity of base\n")
    assert "Gap" not in page


@pytest.mark.parametrize("hits", ["none", "one"])
def test_thin_cases_have_a_report(tmp_path, hits):
    columns = random_columns(0, [60])
    first = int(columns["ar_hit"].argmax())
    columns["ar_hit"] = (columns["position"] == first) & (hits == "one")
    labels = write_labels(tmp_path / "labels", columns)
    losses = [write_losses(tmp_path / f"m{k}", random_losses(k, columns)) for k in (0, 1)]
    gap = compare(losses[0], losses[1:], labels)
    assert (draw("hit-distance", gap) is None) == (hits == "none")
    report = write_report(gap, tmp_path / "report").path
    assert "| AR hits | 1 |" in (report / "report.md").read_text() or hits == "none"


def test_losses_beyond_any_perplexity_have_a_report(tmp_path):
    columns = random_columns(0, [60, 60])
    labels = write_labels(tmp_path / "labels", columns)
    losses = write_losses(tmp_path / "m", np.full(120, 900, np.float32))
    report = write_report(compare(losses, [], labels), tmp_path / "report")
    assert "train-count.png" not in report.meta["files"]
    assert "(900.00)" in (report.path / "report.md").read_text()


def test_table_files_are_read_back(gap, report):
    rows = json.loads((report / "table.json").read_text())
    assert [row["model"] for row in rows] == ["base", "small", "w"]
    assert rows[1]["ar_hit_share"] == gap.share("ar_hit").estimate
    assert len((report / "table.csv").read_text().splitlines()) == 4
