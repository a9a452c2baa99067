"""The figure of a sweep: accuracy against what it varies, a line a model, a panel a task or width.

The paper's figure 2 where widths vary, appendix F's experiments where tasks do.
"""

from recallgap.mqar.models import MODELS
from recallgap.mqar.plan import VARIED
from recallgap.mqar.table import FIGURE, summary
from recallgap.report.drawing import COLOURS, MARKERS, colour, legend, new_figure, with_style

PANEL_INCHES, LEGEND_INCHES, HEIGHT = 3.0, 0.55, 2.6


def draw(varied, rows):
    """{name: figure} of the results of a sweep."""
    return {FIGURE: with_style(accuracy, varied, rows)}


def accuracy(varied, rows):
    """Best accuracy over learning rates, with a band down to the worst."""
    found = summary(varied, rows)
    panels = list(dict.fromkeys(entry["panel"] for entry in found))
    models = [name for name in MODELS if any(entry["model"] == name for entry in found)]
    width = max(PANEL_INCHES * len(panels), 5.0)
    figure, axes = new_figure(width + 0.5, HEIGHT + LEGEND_INCHES, 1, len(panels), sharex=True, sharey=True)
    for part, name in zip(axes[0], panels, strict=True):
        for model in models:
            entries = [e for e in found if (e["panel"], e["model"]) == (name, model)]
            _line(part, model, sorted(entries, key=lambda entry: entry["at"]))
        part.set_title(name)
        part.set_xlabel(VARIED[varied])
    places = sorted({entry["at"] for entry in found})
    _place_axis(axes[0, 0], places, logarithmic=varied != "range")
    axes[0, 0].set_ylim(-0.02, 1.04)
    axes[0, 0].set_ylabel("accuracy")
    legend(figure, axes[0, 0])
    return figure


def _line(axes, model, entries):
    number = list(MODELS).index(model)
    cycle = number // len(COLOURS)
    places = [entry["at"] for entry in entries]
    best = [entry["best"] for entry in entries]
    axes.fill_between(
        places, [entry["worst"] for entry in entries], best, color=colour(number), alpha=0.1, linewidth=0
    )
    axes.plot(
        places,
        best,
        color=colour(number),
        linestyle="--" if cycle else "-",
        marker=MARKERS[number % len(MARKERS)],
        markersize=4.5,
        markerfacecolor="white" if cycle else colour(number),
        linewidth=1.4,
        label=model,
    )


def _place_axis(axes, places, *, logarithmic):
    """Ticks at the places that were tried, and nowhere else."""
    from matplotlib.ticker import NullLocator

    if logarithmic and places[0] > 0:
        axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(NullLocator())
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(places, [f"{place:g}" for place in places])
