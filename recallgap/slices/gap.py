"""The gap artifact: how far models are behind a baseline, and in which slices."""

import json
from dataclasses import dataclass

from recallgap.artifact import fingerprint_of, open_artifact
from recallgap.registry import pick
from recallgap.slices.intervals import Interval, ShareSet


@dataclass(frozen=True)
class Gap:
    """A gap record with its reading aids. Model 0 is the baseline; without further models there is no gap."""

    record: dict
    """JSON values, as in gap.json; docs/definitions.md lists them."""
    artifact: object = None
    """The opened artifact, where the record lies on disk."""

    @property
    def path(self):
        return self.artifact and self.artifact.path

    @property
    def fingerprint(self):
        return self.artifact.fingerprint if self.artifact else fingerprint_of(self.record)

    @property
    def models(self):
        """[{"name", "fingerprint", "config", ...}], the baseline first."""
        return self.record["models"]

    @property
    def warnings(self):
        """What a reader must know before trusting the numbers, as sentences."""
        return self.record["warnings"]

    def to_dict(self):
        return self.record

    def slices(self, family):
        """{slice name: record} of a family."""
        return {part["name"]: part for part in pick("slice family", self.record["families"], family)}

    def estimate(self, quantity, family="all", slice_name="all", *, model=1):
        """`Interval` of "loss", "perplexity", "gap" or "contribution" of a model in a slice of a family."""
        return Interval(**pick("quantity", self._estimates(family, slice_name, model), quantity))

    def share(self, slice_name, *, family="recall", model=1):
        """`ShareSet`: the part of the model's gap to the baseline that lies in a slice."""
        return ShareSet(**self._estimates(family, slice_name, model)["share"])

    def _estimates(self, family, slice_name, model):
        estimates = pick("slice", self.slices(family), slice_name)["models"]
        return pick("model number", dict(enumerate(estimates)), model)

    def table(self):
        """One dict a model, in the shape of the paper's Table 1; intervals and sets as objects."""
        n_hits, n_all = self.slices("recall")["ar_hit"]["n"], self.slices("all")["all"]["n"]
        rows = []
        for number, model in enumerate(self.models):
            row = {"model": model["name"], "n_parameters": model["n_parameters"]}
            row["overall"] = self.estimate("loss", model=number)
            row["ar_hit"] = self.estimate("loss", "recall", "ar_hit", model=number)
            row["other"] = self.estimate("loss", "recall", "other", model=number)
            row["ar_token_share"] = n_hits / n_all
            row["gap"] = self.estimate("gap", model=number) if number else None
            row["ar_hit_share"] = self.share("ar_hit", model=number) if number else None
            rows.append(row)
        return rows


def open_gap(path):
    """Open a gap folder made by `compare`."""
    opened = open_artifact(path, "gap")
    return Gap(json.loads((opened.path / "gap.json").read_text()), opened)
