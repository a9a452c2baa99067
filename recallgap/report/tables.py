"""Tables of a gap: for a reader (texts), and for scripts (CSV, JSON; raw numbers)."""

import csv
import io
from dataclasses import asdict, dataclass

from recallgap.report import text
from recallgap.slices import few_documents

CSV_ENDS = ("estimate", "low", "high")


@dataclass(frozen=True)
class Table:
    """Texts, row by row; the first `left` columns are left-aligned, the others right."""

    header: list
    rows: list
    left: int = 1


def main_table(gap, *, cap_shares=False):
    """The shape of the paper's Table 1: a row a model, the baseline first."""
    header = ["Model", "Parameters", "Overall", "AR hits", "Other tokens", "AR hits of tokens"]
    rows = []
    for row in gap.table():
        parameters = "-" if row["n_parameters"] is None else text.compact(row["n_parameters"])
        losses = [text.perplexity(row[name]) for name in ("overall", "ar_hit", "other")]
        cells = [text.shown(row["model"]), parameters, *losses, text.percent(row["ar_token_share"])]
        if len(gap.models) > 1 and row["gap"] is None:
            cells += ["-", "-"]
        elif row["gap"] is not None:
            cells += [text.gap(row["gap"]), text.share(row["ar_hit_share"], cap=cap_shares)]
        rows.append(cells)
    if len(gap.models) > 1:
        header += ["Gap (nats)", "Gap due to AR hits"]
    return Table(header, rows)


def slice_table(gap, family, *, model, cap_shares=False):
    """A row a slice that holds tokens: the losses of the baseline and `model`, and where their gap lies."""
    n_all = gap.slices("all")["all"]["n"]
    header = ["Slice", "Tokens", "of all", "Documents", text.shown(gap.models[0]["name"])]
    if model:
        header += [
            text.shown(gap.models[model]["name"]),
            "Gap (nats)",
            "Contribution (nats)",
            "Share of the gap",
        ]
    rows = []
    for name, part in gap.slices(family).items():
        if part["n"] == 0:
            continue
        cells = [text.shown(SLICE_TITLES.get((family, name), name)), f"{part['n']:,}"]
        mark = " (few)" if few_documents(part["n_documents"]) else ""
        cells += [text.percent(part["n"] / n_all), f"{part['n_documents']:,}{mark}"]
        cells += [text.perplexity(gap.estimate("loss", family, name, model=m)) for m in sorted({0, model})]
        if model:
            for quantity in ("gap", "contribution"):
                cells.append(text.gap(gap.estimate(quantity, family, name, model=model)))
            cells.append(text.share(gap.share(name, family=family, model=model), cap=cap_shares))
        rows.append(cells)
    return Table(header, rows)


SLICE_TITLES = {
    ("recall", "ar_hit"): "AR hits",
    ("recall", "other"): "other tokens",
    ("all", "all"): "all tokens",
}


def aligned(table):
    """The table as lines of text for a terminal; the interval of a cell stands in a second line.

    >>> print(aligned(Table(["Model", "Loss"], [["a", "10 [9, 12]"], ["bcdefg", "7"]])))
    Model      Loss
    a            10
            [9, 12]
    bcdefg        7
    """
    split = [[cell.partition(" [") for cell in row] for row in (table.header, *table.rows)]
    lines = [[estimate for estimate, _, _ in row] for row in split[:1]]
    for row in split[1:]:
        lines.append([estimate for estimate, _, _ in row])
        if any(rest for _, _, rest in row):
            lines.append(["[" + rest if rest else "" for _, _, rest in row])
    widths = [max(len(line[column]) for line in lines) for column in range(len(table.header))]
    return "\n".join("  ".join(_pad(line, widths, table.left)).rstrip() for line in lines)


def _pad(line, widths, left):
    for column, (cell, width) in enumerate(zip(line, widths, strict=True)):
        yield cell.ljust(width) if column < left else cell.rjust(width)


def main_rows(gap):
    """The main table as flat dicts of raw numbers; intervals as name, name_low, name_high."""
    rows = []
    for number, row in enumerate(gap.table()):
        flat = {"model": row["model"], "n_parameters": row["n_parameters"]}
        for name, family, part in MAIN_COLUMNS:
            for quantity in ("loss", "perplexity"):
                found = gap.estimate(quantity, family, part, model=number)
                flat |= _flat(f"{name}_{quantity}", asdict(found))
        flat["ar_token_share"] = row["ar_token_share"]
        for name in ("gap", "ar_hit_share"):
            flat |= _flat(name, asdict(row[name]) if row[name] else {})
        flat["ar_hit_share_kind"] = row["ar_hit_share"] and row["ar_hit_share"].kind
        flat["p_no_gap"] = gap.record["p_no_gap"][number - 1] if number else None
        rows.append(flat)
    return rows


MAIN_COLUMNS = (("overall", "all", "all"), ("ar_hit", "recall", "ar_hit"), ("other", "recall", "other"))


def slice_rows(gap):
    """Every slice of every family and every model as flat dicts of raw numbers."""
    rows = []
    for family in gap.record["families"]:
        for name, part in gap.slices(family).items():
            place = {
                "family": family,
                "slice": name,
                "n_tokens": part["n"],
                "n_documents": part["n_documents"],
            }
            for model, estimates in zip(gap.models, part["models"], strict=True):
                flat = place | {"model": model["name"]}
                for quantity in ("loss", "perplexity", "gap", "contribution", "share"):
                    flat |= _flat(quantity, estimates.get(quantity, {}))
                flat["share_kind"] = estimates.get("share", {}).get("kind")
                rows.append(flat)
    return rows


def _flat(name, found):
    """{name: estimate, name_low: low, name_high: high} of an interval's dict, None where it is missing."""
    return {name if end == "estimate" else f"{name}_{end}": found.get(end) for end in CSV_ENDS}


def csv_text(rows):
    """Flat dicts of the same keys as CSV; None is an empty cell."""
    file = io.StringIO()
    writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()
