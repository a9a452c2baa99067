"""compare: what adds up, what is refused, and the cases at the edge."""

import json
import math
import warnings

import numpy as np
import pytest
from gap_cases import random_columns, random_losses, write_case, write_labels, write_losses

from recallgap.corpus import tokens_sha256, write_corpus
from recallgap.counts import count_ngrams
from recallgap.errors import ArtifactError, ConfigError
from recallgap.recall import LabelConfig, label
from recallgap.slices import SLICES, compare, open_gap, open_losses
from recallgap.slices.comparison import histogram


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    """(columns, labels, [base, small, large]) with a gap that lies in AR hits."""
    folder = tmp_path_factory.mktemp("case")
    return write_case(folder, base=(1.0, 3.0), small=(2.0, 3.1), large=(0.9, 2.9))


@pytest.fixture(scope="module")
def gap(case):
    _, labels, (base, *models) = case
    return compare(base, models, labels)


@pytest.mark.parametrize("family", SLICES)
@pytest.mark.parametrize("model", [1, 2])
def test_contributions_add_up_to_the_gap_and_shares_to_1(gap, family, model):
    parts = gap.slices(family)
    contributions = [gap.estimate("contribution", family, name, model=model).estimate for name in parts]
    shares = [gap.share(name, family=family, model=model).estimate for name in parts]
    assert math.fsum(contributions) == pytest.approx(gap.estimate("gap", model=model).estimate, abs=1e-12)
    assert math.fsum(shares) == pytest.approx(1, abs=1e-12)
    assert sum(part["n"] for part in parts.values()) == gap.slices("all")["all"]["n"]


def test_the_share_is_that_of_the_papers_formula(case, gap):
    columns, _, (base, model, _) = case
    base_T, model_T = (open_losses(path).loss_T.astype(np.float64) for path in (base, model))
    scored = ~np.isnan(base_T)
    hit = columns["ar_hit"] & scored
    ppl = {
        (k, name): np.exp(x[m].mean())
        for k, x in ((0, base_T), (1, model_T))
        for name, m in (("hit", hit), ("all", scored))
    }
    delta = {name: np.log(ppl[1, name]) - np.log(ppl[0, name]) for name in ("hit", "all")}
    papers = delta["hit"] * hit.sum() / (delta["all"] * scored.sum())
    assert gap.share("ar_hit").estimate == pytest.approx(papers, abs=1e-9)
    assert gap.estimate("perplexity", "recall", "ar_hit").estimate == pytest.approx(ppl[1, "hit"], abs=1e-9)
    assert gap.estimate("perplexity", model=0).estimate == pytest.approx(ppl[0, "all"], abs=1e-9)


def test_perplexity_is_exp_of_the_loss_and_of_its_ends(gap):
    loss, perplexity = gap.estimate("loss"), gap.estimate("perplexity")
    for end in ("estimate", "low", "high"):
        assert getattr(perplexity, end) == math.exp(getattr(loss, end))


@pytest.mark.parametrize(("loss", "perplexity"), [(20.0, math.exp(20.0)), (900.0, None)])
def test_a_perplexity_too_large_for_a_float_is_none(tmp_path, loss, perplexity):
    columns = random_columns(0, [50, 50])
    labels = write_labels(tmp_path / "labels", columns)
    gap = compare(
        write_losses(tmp_path / "m", np.full(100, loss, np.float32)), [], labels, out=tmp_path / "gap"
    )
    assert gap.estimate("loss", model=0).estimate == loss
    assert gap.estimate("perplexity", model=0).estimate == perplexity


def test_a_gap_is_written_once_and_reads_back(case, tmp_path, monkeypatch):
    _, labels, (base, model, _) = case
    first = compare(base, [model], labels, out=tmp_path / "gap")
    assert first.to_dict() == json.loads((tmp_path / "gap" / "gap.json").read_text())
    monkeypatch.setattr("recallgap.slices.comparison.scan", None)
    again = compare(base, [model], labels, out=tmp_path / "gap")
    assert again.to_dict() == first.to_dict() == open_gap(tmp_path / "gap").to_dict()
    assert again.fingerprint == first.fingerprint
    with pytest.raises(ArtifactError, match=r"config.level is 0.95 there, 0.9 now"):
        compare(base, [model], labels, out=tmp_path / "gap", level=0.9)


def test_equal_work_gives_equal_bytes(case, tmp_path):
    _, labels, (base, model, _) = case
    for name in ("a", "b"):
        compare(base, [model], labels, out=tmp_path / name)
    for file in ("gap.json", "meta.json"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_labels_made_from_a_corpus_fit(tmp_path):
    random = np.random.default_rng(0)
    documents = [(random.integers(0, 12, n), f"domain {n % 3}") for n in (50, 0, 1, 400, 230, 7)]
    corpus = write_corpus(tmp_path / "corpus", documents, vocab_size=12)
    counts = count_ngrams(corpus, tmp_path / "counts", for_corpus=corpus)
    config = LabelConfig(context_len=64, max_train_count=4)
    labels = label(corpus, counts, tmp_path / "labels", config=config)
    scored = labels.column("position") > 0
    loss_T = np.where(scored, random.gamma(1, 1, corpus.n_tokens), np.nan).astype(np.float32)
    results = {"tokens_sha256": tokens_sha256(corpus)}
    losses = write_losses(tmp_path / "m", loss_T, corpus=corpus.fingerprint, results=results)
    gap = compare(open_losses(losses), [losses], labels)
    assert gap.slices("all")["all"]["n"] == scored.sum()
    assert gap.slices("recall")["ar_hit"]["n"] == (labels.column("ar_hit") & scored).sum() > 0
    assert gap.record["documents"]["n"] == 5 - 1 * (not scored[50])
    assert set(gap.slices("domain")) == {"domain 1", "domain 2"}


def test_level_widens_intervals(case):
    _, labels, (base, model, _) = case
    narrow, wide = (compare(base, [model], labels, level=level) for level in (0.5, 0.99))
    assert narrow.estimate("gap").low > wide.estimate("gap").low
    assert wide.to_dict()["config"]["level"] == 0.99
    with pytest.raises(ConfigError, match="between 0 and 1"):
        compare(base, [model], labels, level=95)


def test_one_checkpoint_alone_has_losses_and_no_gap(case):
    _, labels, (base, *_) = case
    gap = compare(base, [], labels)
    (row,) = gap.table()
    assert row["gap"] is None and row["ar_hit_share"] is None
    assert row["ar_hit"].estimate < row["other"].estimate


def test_identical_models_have_no_gap_and_no_share(case):
    _, labels, (base, *_) = case
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gap = compare(base, [base], labels)
    assert gap.estimate("gap").estimate == 0
    assert gap.share("ar_hit").estimate is None
    assert gap.share("ar_hit").kind == "everything"
    assert gap.record["p_no_gap"] == [1.0]
    assert any("shares of it are undefined" in line for line in gap.warnings)
    names = [model["name"] for model in gap.models]
    assert len(set(names)) == 1, "the same losses twice cannot be told apart"


def test_one_document_has_estimates_and_no_intervals(tmp_path):
    _, labels, (base, model) = write_case(tmp_path, lengths=[400], base=(1, 3), small=(2, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gap = compare(base, [model], labels)
    assert gap.estimate("gap").estimate > 0 and gap.estimate("gap").low is None
    assert gap.share("ar_hit").kind == "unknown"
    assert gap.share("ar_hit").estimate > 0.5
    assert gap.warnings[0].startswith("Only 1 document(s)")
    assert gap.record["documents"] == {"n": 1, "effective": 1.0, "largest_share": 1.0}


def test_an_empty_slice_is_kept_and_said(tmp_path):
    columns = random_columns(0, [100] * 40)
    columns["ar_hit"][:] = False
    labels = write_labels(tmp_path / "labels", columns)
    base = write_losses(tmp_path / "base", random_losses(1, columns))
    model = write_losses(tmp_path / "model", random_losses(2, columns, other_loss=4))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gap = compare(base, [model], labels)
    hits = gap.slices("recall")["ar_hit"]
    assert (hits["n"], hits["n_documents"]) == (0, 0)
    assert gap.estimate("loss", "recall", "ar_hit").estimate is None
    assert gap.share("ar_hit").estimate == 0 and gap.share("other").estimate == 1
    assert "Slices by recall: no token is scored in ar_hit." in gap.warnings
    assert gap.record["hit_distances"] == {"edges": [1], "counts": []}


def test_documents_without_scored_tokens_are_no_sampling_units(tmp_path):
    lengths = [0, 100, 0, 90, 1, 80]
    columns = random_columns(0, lengths)
    loss_T = random_losses(1, columns)
    loss_T[columns["document"] == 4] = np.nan
    labels = write_labels(tmp_path / "labels", columns)
    gap = compare(write_losses(tmp_path / "m", loss_T), [], labels)
    assert gap.record["documents"]["n"] == 3


def test_few_and_unequal_documents_and_thin_counts_are_said(tmp_path):
    columns = random_columns(0, [3000] + [40] * 34)
    labels = write_labels(tmp_path / "labels", columns, results={"coverage": 0.5})
    gap = compare(write_losses(tmp_path / "m", random_losses(1, columns)), [], labels)
    said = " ".join(gap.warnings)
    assert "weigh like" in said and "the longest has 69% of the tokens" in said
    assert "fewer than 30 documents" in said
    assert "cover 50.0% of the training corpus" in said
    equal = random_columns(0, [60] * 200)
    labels = write_labels(tmp_path / "equal", equal | {"train_count": equal["train_count"] * 0 + 5})
    assert compare(write_losses(tmp_path / "e", random_losses(1, equal)), [], labels).warnings == []


def test_clashing_names_are_told_apart(case, tmp_path):
    columns, labels, (base, *_) = case
    config = {"model": "base"}
    short = write_losses(tmp_path / "s", random_losses(5, columns), config=config | {"window": 8})
    other = write_losses(tmp_path / "o", random_losses(6, columns), config=config | {"revision": "b"})
    gap = compare(base, [short, other], labels)
    names = [model["name"] for model in gap.models]
    prints = [open_losses(path).fingerprint[:8] for path in (base, other)]
    assert names == [f"base ({prints[0]})", "base (window 8)", f"base ({prints[1]})"]


def test_an_unknown_slice_is_taught(gap):
    with pytest.raises(ConfigError, match="Did you mean 'ar_hit'"):
        gap.share("ar_hits")
    with pytest.raises(ConfigError, match="unknown slice family 'domains'"):
        gap.slices("domains")
    with pytest.raises(ConfigError, match="Did you mean 'perplexity'"):
        gap.estimate("perplexities")
    with pytest.raises(ConfigError, match="unknown model number '9'"):
        gap.estimate("loss", model=9)


@pytest.mark.parametrize("top", [2, 3, 11, 400, 2048])
def test_the_distance_histogram_loses_no_hit(top):
    counts = np.random.default_rng(top).integers(0, 5, top)
    counts[0] = 0
    found = histogram(counts)
    assert sum(found["counts"]) == counts.sum()
    assert found["edges"][0] == 1 and found["edges"][-2] < top <= found["edges"][-1]
    assert all(low < high for low, high in zip(found["edges"], found["edges"][1:], strict=False))
