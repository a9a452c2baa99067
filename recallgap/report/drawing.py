"""What the figures share: style, axes of bins, lines with bands, deterministic saving.

Bins (of training counts, of distances) stand side by side: bin k lies between k and k + 1 on the axis, and
the smallest value of the bin is written at its left border.
"""

import math

import numpy as np

from recallgap.report.text import compact, shown

COLOURS = ("#000000", "#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # Okabe & Ito
MARKERS = "osD^vP*"
STYLE = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "svg.fonttype": "path",
    "svg.hashsalt": "recallgap",
    "text.parse_math": False,  # a dollar sign in a model's name is a dollar sign
}
METADATA = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}
LONGEST_NAME, MAX_TICKS, PIXELS_PER_INCH = 44, 13, 150


def with_style(function, *arguments):
    """`function(*arguments)` under the style of all figures, whatever the user's matplotlib settings are."""
    import matplotlib

    with matplotlib.rc_context({**matplotlib.rcParamsDefault, "backend": matplotlib.get_backend(), **STYLE}):
        return function(*arguments)


def save(figure, path, suffix):
    """Write a figure as "png" or "svg", without a date, so that equal figures are equal files."""
    with_style(lambda: figure.savefig(path, format=suffix, dpi=PIXELS_PER_INCH, metadata=METADATA[suffix]))


def new_figure(width, height, n_rows, n_columns, **options):
    """A figure of this size in inches, and its axes as an array (n_rows, n_columns)."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(n_rows, n_columns, squeeze=False, **options)


def colour(model):
    return COLOURS[model % len(COLOURS)]


def _legend_name(model):
    name = shown(model["name"])
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 3]}..."


def draw_models(axes, bins, quantity, models, *, first):
    """A line with a band per model from number `first` on; bins without tokens leave a hole."""
    middle = np.arange(len(bins)) + 0.5
    for number in range(first, len(models)):
        found = [part["models"][number][quantity] for part in bins]
        estimate, low, high = (np.array([f[k] for f in found], float) for k in ("estimate", "low", "high"))
        axes.fill_between(middle, low, high, color=colour(number), alpha=0.18, linewidth=0)
        style = {"marker": MARKERS[number % len(MARKERS)], "markersize": 4, "linewidth": 1.4}
        axes.plot(middle, estimate, color=colour(number), label=_legend_name(models[number]), **style)


def estimates_of(bins, quantity, *, first):
    """All estimates that `draw_models` draws; they decide the range shown, not the bands of thin bins."""
    found = [model[quantity]["estimate"] for part in bins for model in part["models"][first:]]
    return [value for value in found if value is not None]


def name_bins(axis, bins):
    """Ticks at the borders of the bins, with the smallest value to the right; every second where many."""
    names = [compact(part["at_least"]) for part in bins]
    names.append("" if bins[-1]["at_most"] is None else compact(bins[-1]["at_most"] + 1))
    step = -(-len(names) // MAX_TICKS)
    axis.set_ticks(list(range(len(names)))[::step], names[::step])
    axis.axes.set_xlim(0, len(bins))


def border_after(value, bins):
    """Where on the axis the values up to `value` end (None: outside); logarithmic within a bin."""
    for k, part in enumerate(bins):
        low, high = part["at_least"], part["at_most"]
        if low <= value and high is not None and value <= high:
            return k + (math.log((value + 1) / low) / math.log((high + 1) / low) if low else 1.0)
    return None


def mark(axes, position, label):
    """A vertical line, named at its top; none where `position` is None."""
    if position is None:
        return
    axes.axvline(position, color="#555555", linestyle="--", linewidth=1)
    place = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points", "ha": "right", "va": "top"}
    box = {"facecolor": "white", "edgecolor": "none", "pad": 1.5, "alpha": 0.8}
    axes.annotate(label, (position, 0.99), xytext=(-4, 0), fontsize=8, bbox=box, **place)


def count_scale(axis):
    """A linear axis of counts with few ticks."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axis.set_major_locator(MaxNLocator(nbins=3, integer=True))
    axis.set_major_formatter(FuncFormatter(lambda value, _: compact(value)))


def legend(figure, axes):
    """One legend for the figure, above its axes, so that it covers nothing."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=min(len(handles), 3))


def log_scale(axis):
    """A logarithmic axis with plain numbers at 1, 2, 5, 10, ... or, over many decades, at the decades."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    low, high = axis.get_view_interval()
    subs = (1,) if high / max(low, 1e-12) > 1e3 else (1, 2, 5)
    axis.set_major_locator(LogLocator(subs=subs))
    axis.set_major_formatter(FuncFormatter(lambda value, _: compact(value)))
    axis.set_minor_formatter(NullFormatter())
