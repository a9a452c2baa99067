"""compare refuses inputs that do not belong together, and counts the tokens it leaves out."""

import numpy as np
import pytest
from gap_cases import random_columns, random_losses, write_case, write_labels, write_losses

from recallgap.errors import ArtifactError
from recallgap.slices import compare, open_losses


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    """(columns, labels, [base])."""
    return write_case(tmp_path_factory.mktemp("case"), base=(1.0, 3.0))


REFUSALS = [
    (
        {"corpus": "corpus-b"},
        r"the corpus is corpus-b in the losses .*/odd, but corpus-a in the labels .*/labels",
    ),
    ({"results": {"tokens_sha256": "x"}}, r"tokens_sha256 is x in the losses .*, but tokens-a in the labels"),
    ({"config": {"policy": "document"}}, r"policy is document in the losses .*, but packed in the labels"),
    ({"config": {"context_len": 32}}, r"context_len is 32 in the losses .*, but 64 in the labels"),
    (
        {"config": {"dtype": "bfloat16"}},
        r"dtype is float32 in the losses .*/base, but bfloat16 in the losses .*/odd",
    ),
    ({"config": {"prefix": "bos"}}, r"prefix is none in the losses .*/base, but bos in the losses .*/odd"),
    ({"results": {"n_scored": 7}}, r"odd: 8,560 tokens have a loss, but its record says 7 are scored"),
    ({"results": {"n_scored": 0}}, r"odd: not one of its 8696 tokens is scored"),
]


@pytest.mark.parametrize(("change", "message"), REFUSALS)
def test_strangers_are_refused_naming_both_sides(case, tmp_path, change, message):
    columns, labels, (base, *_) = case
    odd = write_losses(tmp_path / "odd", random_losses(9, columns), **change)
    with pytest.raises(ArtifactError, match=message):
        compare(base, [odd], labels)


def test_a_baseline_of_another_corpus_is_refused_too(case, tmp_path):
    columns, labels, _ = case
    odd = write_losses(tmp_path / "odd", random_losses(9, columns), corpus="corpus-b")
    with pytest.raises(ArtifactError, match="corpus-b"):
        compare(odd, [], labels)


def test_other_windows_are_no_strangers(case, tmp_path):
    columns, labels, (base, *_) = case
    short = write_losses(tmp_path / "short", random_losses(9, columns), config={"window": 8})
    assert len(compare(base, [short], labels).models) == 2


def test_other_scored_tokens_are_refused_or_left_out_and_counted(case, tmp_path):
    columns, labels, (base, *_) = case
    loss_T = random_losses(9, columns)
    loss_T[70:80] = np.nan
    short = write_losses(tmp_path / "short", loss_T)
    with pytest.raises(
        ArtifactError, match=r"base \(8,560 scored .*short \(8,550\).* token 70, which only base"
    ):
        compare(base, [short], labels)
    gap = compare(base, [short], labels, common=True)
    assert [model["n_left_out"] for model in gap.models] == [10, 0]
    assert [model["n_scored"] for model in gap.models] == [8560, 8550]
    assert any("10 of 8,560 tokens scored by base are left out" in line for line in gap.warnings)
    both = ~np.isnan(loss_T) & (columns["position"] > 0)
    expected = open_losses(base).loss_T[both].astype(np.float64).mean()
    assert gap.estimate("loss", model=0).estimate == pytest.approx(expected, abs=1e-12)


def test_models_that_score_nothing_in_common_are_refused(tmp_path):
    columns = random_columns(0, [50])
    labels = write_labels(tmp_path / "labels", columns)
    odd, even = random_losses(1, columns), random_losses(2, columns)
    odd[::2] = even[1::2] = np.nan
    paths = [write_losses(tmp_path / name, x) for name, x in (("odd", odd), ("even", even))]
    with pytest.raises(ArtifactError, match="no token that all of them score"):
        compare(paths[0], paths[1:], labels, common=True)
