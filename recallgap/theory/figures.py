"""The complexity table of propositions H.33 and H.36 as a figure: measured over bound, by N.

A statement is a row of panels, a quantity a panel, a token width a line; what holds stays below a constant.
The last column has the price of Batcher's sorting network, in comparators.
"""

from recallgap.report.drawing import COLOURS, MARKERS, legend, log_scale, new_figure, with_style
from recallgap.theory.bounds import QUANTITIES

BOUNDS = {
    ("H.33", "size"): "n d (log m + log n)",
    ("H.33", "depth"): "log n (log m + log n log d)",
    ("H.33", "width"): "n d",
    ("H.36", "size"): "N d log\u00b2 N",
    ("H.36", "depth"): "log d log\u00b2 N",
    ("H.36", "width"): "N d log N",
}
STATEMENTS = ("H.33", "H.36")
FIGURE_WIDTH, ROW_HEIGHT = 12.0, 2.7


def complexity_figure(rows):
    """The figure of the rows of `complexity.complexity_table`."""
    return with_style(_draw, rows)


def _draw(rows):
    size = (FIGURE_WIDTH, ROW_HEIGHT * len(STATEMENTS))
    figure, panels = new_figure(*size, len(STATEMENTS), len(QUANTITIES) + 1)
    for statement, row_of_panels in zip(STATEMENTS, panels, strict=True):
        of_statement = [row for row in rows if row["statement"] == statement]
        for quantity, axes in zip(QUANTITIES, row_of_panels[:-1], strict=True):
            for number, d in enumerate(sorted({row["d"] for row in of_statement})):
                line = [row for row in of_statement if row["d"] == d]
                _line(axes, line, f"{quantity}_ratio", number, f"d = {d} bits")
            _finish(axes, f"Proposition {statement}: {quantity}", f"over {BOUNDS[statement, quantity]}")
    legend(figure, panels[0, 0])

    smallest = min(row["d"] for row in rows)
    sorts = [row for row in rows if row["statement"] == "H.36" and row["d"] == smallest]
    once, levels = panels[:, -1]
    _line(once, sorts, "sort_once", 3, "Batcher")
    _finish(once, "Lemma H.35: comparators", "over n log n")
    _line(levels, sorts, "sort_from_scratch", 3, "each level sorts")
    _line(levels, sorts, "sort_shared", 4, "levels share merges")
    _finish(levels, "H.36: comparators of all sorts", "over n log\u00b2 n")
    levels.legend(loc="lower right")
    return figure


def _line(axes, rows, name, number, label):
    style = {"marker": MARKERS[number], "markersize": 4, "linewidth": 1.4, "color": COLOURS[number]}
    axes.plot([row["N"] for row in rows], [row[name] for row in rows], label=label, **style)


def _finish(axes, title, bound):
    axes.set(title=title, xlabel="N tokens")
    axes.set_ylabel(bound, fontsize=8)
    log_scale(axes.xaxis)
    axes.set_ylim(bottom=0)
