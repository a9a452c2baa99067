"""The figures of a gap. Each is one function from a `Gap` to a matplotlib Figure and one line in FIGURES.

A function returns None where the gap has nothing to show in its figure. Bands are intervals bin by bin, at
the gap's level; the range of an axis follows the estimates, so a band of a thin bin may leave it.
"""

import numpy as np

from recallgap.report.drawing import (
    border_after,
    colour,
    count_scale,
    draw_models,
    estimates_of,
    legend,
    log_scale,
    mark,
    name_bins,
    new_figure,
    with_style,
)


def perplexity_by_train_count(gap):
    """The paper's figure 1: perplexity against the training count, repeated n-grams and others apart."""
    groups = {
        "repeated": "repeated in the context (AR-hit candidates)",
        "not repeated": "not repeated in the context",
    }
    slices = list(gap.slices("repeat_x_train_count").values())
    bins_of = {group: [part for part in slices if part["group"] == group] for group in groups}
    n_bins = 1 + max(k for bins in bins_of.values() for k, part in enumerate(bins) if part["n"])
    values = [v for bins in bins_of.values() for v in estimates_of(bins, "perplexity", first=0)]
    if not values:  # all too large for a float
        return None
    threshold = gap.record["labels"]["config"]["max_train_count"]
    figure, axes = new_figure(10, 5, 2, 2, sharex=True, sharey="row", height_ratios=[4, 1])
    for (upper, lower), group in zip(axes.T, groups, strict=True):
        bins = bins_of[group][:n_bins]
        draw_models(upper, bins, "perplexity", gap.models, first=0)
        mark(upper, border_after(threshold, bins), f"threshold {threshold:,}")
        upper.set_title(groups[group])
        lower.bar(np.arange(n_bins) + 0.5, [part["n"] for part in bins], width=0.9, color="#999999")
        name_bins(lower.xaxis, bins)
        lower.set_xlabel(f"times the {_ngram(gap)} occurred in training")
    axes[0, 0].set_ylim(max(min(values) / 1.6, 0.9), max(values) * 2)
    log_scale(axes[0, 0].yaxis)
    count_scale(axes[1, 0].yaxis)
    axes[0, 0].set_ylabel("perplexity")
    axes[1, 0].set_ylabel("tokens")
    legend(figure, axes[0, 0])
    return figure


def hit_distances(gap):
    """The paper's figure 3: how far back the AR hits lie, both axes logarithmic."""
    edges, counts = (np.array(gap.record["hit_distances"][key]) for key in ("edges", "counts"))
    if not counts.sum():
        return None
    density = counts / np.diff(edges)
    floor = density[density > 0].min() / 2
    figure, axes = new_figure(6, 4, 1, 1)
    axes = axes[0, 0]
    axes.stairs(density, edges, baseline=floor, fill=True, color=colour(2), alpha=0.3)
    axes.stairs(np.maximum(density, floor), edges, baseline=floor, color=colour(2), linewidth=1.2)
    axes.set(xlim=(edges[0], edges[-1]), ylim=(floor, density.max() * 2))
    log_scale(axes.xaxis)
    log_scale(axes.yaxis)
    axes.set_xlabel(f"tokens back to the latest earlier occurrence of the {_ngram(gap)}")
    axes.set_ylabel("AR hits per token of distance")
    for window in _windows(gap):
        mark(axes, window if window < edges[-1] else None, f"window {window:,}")
    return figure


def gap_by_distance(gap):
    """The gap in AR hits by their distance: per token of the bin, and as a part of the overall gap."""
    *bins, rest = gap.slices("distance").values()
    n_bins = 1 + max((k for k, part in enumerate(bins) if part["n"]), default=-1)
    if len(gap.models) < 2 or n_bins == 0:
        return None
    bins = bins[:n_bins]
    figure, axes = new_figure(8, 6, 2, 1, sharex=True)
    upper, lower = axes[:, 0]
    for part, quantity in ((upper, "gap"), (lower, "contribution")):
        draw_models(part, bins, quantity, gap.models, first=1)
        values = [0.0, *estimates_of(bins, quantity, first=1)]
        margin = 0.35 * (max(values) - min(values)) or 1.0
        part.set_ylim(min(values) - margin, max(values) + margin)
        part.axhline(0, color="#888888", linewidth=0.8)
        for window in _windows(gap):
            mark(part, border_after(window - 1, bins), f"window {window:,}")
    for number, others in list(enumerate(rest["models"]))[1:]:
        if rest["n"]:
            upper.axhline(others["gap"]["estimate"], color=colour(number), linestyle=":")
    upper.plot([], [], color="#888888", linestyle=":", label="tokens that are no AR hit")
    legend(figure, upper)
    upper.set_ylabel("gap (nats per AR hit of the bin)")
    lower.set_ylabel("contribution to the gap\n(nats per scored token)")
    name_bins(lower.xaxis, bins)
    lower.set_xlabel(f"tokens back to the latest earlier occurrence of the {_ngram(gap)}")
    return figure


FIGURES = {
    "train-count": perplexity_by_train_count,
    "hit-distance": hit_distances,
    "gap-by-distance": gap_by_distance,
}


def draw(name, gap):
    """The figure called `name` in FIGURES, or None where the gap has nothing to show in it."""
    return with_style(FIGURES[name], gap)


def _ngram(gap):
    order = gap.record["labels"]["config"]["order"]
    return "bigram" if order == 2 else f"{order}-gram"


def _windows(gap):
    """The windows that cut a model's view below the context, each once."""
    return sorted({m["config"]["window"] for m in gap.models if m["config"]["window"]})
