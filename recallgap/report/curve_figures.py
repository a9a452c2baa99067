"""The figures of pretraining runs. Each is one function from `Curves` to a matplotlib Figure.

A function returns None where the runs have nothing to show in its figure. Tokens seen are on a logarithmic
axis where they span more than LOG_FROM: the first steps and the last ones are then both seen.
"""

import math

from recallgap.report.curves import RECALL_MARGIN, recall_appears
from recallgap.report.drawing import COLOURS, LONGEST_NAME, MARKERS, colour, log_scale, new_figure, with_style

LOG_FROM = 20
LINES = ("-", (0, (4, 1.5)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)))
MARKER_EVERY = 0.12
"""Of the axes' diagonal, so that markers name a line of many points and do not hide it."""
STRETCHES = 60
"""Points of a line of training loss: single steps are too noisy to tell two lines apart."""
SHARES_SHOWN = (-50, 150)
"""Per cent; shares may lie beyond, where a gap is small or its parts pull apart."""
PANELS = {"ar_hit": "AR hits", "other": "other tokens", "rare_first": "rare first occurrences"}
SEEN_PANELS = {"ar_hit_seen": "AR hits, by tokens seen so far", "other_seen": "other tokens"}


def recall_curve(curves):
    """Perplexity against tokens seen, on AR hits, other tokens and rare first occurrences."""
    return _perplexities(curves, PANELS, ringed="ar_hit")


def recall_curve_seen(curves):
    """The same with AR hits that were rare in the training tokens seen so far, where the runs have them."""
    names = {name for run in curves.runs for evaluation in run.evaluations for name in evaluation.sums}
    return _perplexities(curves, SEEN_PANELS, ringed=None) if names >= SEEN_PANELS.keys() else None


def _perplexities(curves, panels, *, ringed):
    """A panel a slice and a line a run; a ring where recall appears, in the panel `ringed`."""
    figure, axes = _figure(curves, 10, 3.6, 1, len(panels), sharex=True, sharey=True)
    for part, (name, title) in zip(axes[0], panels.items(), strict=True):
        for number, run in enumerate(curves.runs):
            held = [e for e in run.evaluations if name in e.sums and e.perplexity(name) is not None]
            points = [(e.tokens, e.perplexity(name)) for e in held]
            _line(part, number, points, label=_short(run.name))
            if name == ringed:
                _ring(part, number, [point for point in points if point[0] == recall_appears(run)])
        part.set_title(title)
        part.set_xlabel("training tokens seen")
    axes[0, 0].set_ylabel("perplexity")
    log_scale(axes[0, 0].yaxis)
    _token_scale(axes[0], [e.tokens for run in curves.runs for e in run.evaluations])
    _legend(figure, axes[0, 0])
    if ringed and any(recall_appears(run) is not None for run in curves.runs):
        _ring_legend(figure)
    return figure


def gap_curve(curves):
    """The gap to the first run at equal tokens seen, the part due to AR hits, and its share."""
    found = {number: curves.gaps(number) for number in range(1, len(curves.runs))}
    gaps = {number: points for number, points in found.items() if points}
    if not gaps:
        return None
    figure, axes = _figure(curves, 10, 3.6, 1, 3, sharex=True)
    titles = ("gap", "part of the gap due to AR hits", "share due to AR hits")
    for part, title in zip(axes[0], titles, strict=True):
        part.set_title(title)
        part.set_xlabel("training tokens seen")
        part.axhline(0, color="#888888", linewidth=0.8)
    left, middle, right = axes[0]
    middle.sharey(left)
    middle.tick_params(labelleft=False)
    right.axhline(100, color="#888888", linewidth=0.8)
    for number, points in gaps.items():
        name = _short(curves.runs[number].name)
        _line(left, number, [(point.tokens, point.gap) for point in points], label=name)
        _line(middle, number, [(point.tokens, point.contribution) for point in points], label=name)
        _line(right, number, _percents(points), label=name)
    left.set_ylabel(f"nats per token against {_short(curves.runs[0].name)}")
    right.set_ylabel("% of the gap")
    right.set_ylim(*SHARES_SHOWN)
    _token_scale(axes[0], [point.tokens for points in gaps.values() for point in points])
    _legend(figure, left)
    return figure


def _percents(points):
    """(tokens, share in per cent) of gap points; NaN, a hole, where there is none or the gap changes sign."""
    found = []
    for before, point in zip([None, *points], points, strict=False):
        if before and (before.gap < 0) != (point.gap < 0):  # the share runs through infinity between them
            found.append((point.tokens, math.nan))
        found.append((point.tokens, math.nan if point.share is None else 100 * point.share))
    return found


def loss_curve(curves):
    """Training loss, averaged over stretches, and learning rate against tokens seen."""
    if not any(run.training for run in curves.runs):
        return None
    figure, axes = _figure(curves, 8, 5, 2, 1, sharex=True, height_ratios=[3, 1])
    upper, lower = axes[:, 0]
    last = max(tokens for run in curves.runs for tokens, _, _ in run.training)
    first = min(run.training[0][0] for run in curves.runs if run.training)
    for number, run in enumerate(curves.runs):
        losses = _averaged([(tokens, loss) for tokens, loss, _ in run.training], first, last)
        rates = [(tokens, rate) for tokens, _, rate in run.training]
        for part, points in ((upper, losses), (lower, rates)):
            _line(part, number, points, label=_short(run.name), linewidth=0.9)
    upper.set_ylabel("training loss (nats per token)")
    lower.set_ylabel("learning rate")
    lower.set_ylim(bottom=0)
    lower.set_xlabel("training tokens seen")
    _token_scale(axes[:, 0], [tokens for run in curves.runs for tokens, _, _ in run.training])
    _legend(figure, upper)
    return figure


def _averaged(points, first, last):
    """Points (tokens, mean loss since the point before) averaged in STRETCHES of equal ratio of tokens.

    A stretch stands at its last point; losses that are not finite are left out.
    """
    before, sums = 0, {}
    width = math.log(max(last, 2) / max(first, 1)) / STRETCHES or 1.0
    for tokens, loss in points:
        stretch = math.ceil(math.log(max(tokens, 1) / max(first, 1)) / width)
        n_tokens, before = tokens - before, tokens
        if math.isfinite(loss):
            _, n, total = sums.get(stretch, (0, 0, 0.0))
            sums[stretch] = (tokens, n + n_tokens, total + n_tokens * loss)
    return [(tokens, total / n) for tokens, n, total in sums.values() if n]


FIGURES = {
    "recall-curve": recall_curve,
    "recall-curve-seen": recall_curve_seen,
    "gap-curve": gap_curve,
    "loss-curve": loss_curve,
}


def draw(name, curves):
    """The figure called `name` in FIGURES, or None where the runs have nothing to show in it."""
    return with_style(FIGURES[name], curves)


def _figure(curves, width, height, n_rows, n_columns, **options):
    """A new figure that grows by the lines of its legend, so that its axes keep their size."""
    longest = max(len(_short(run.name)) for run in curves.runs)
    rows = math.ceil(len(curves.runs) / _legend_columns(width, longest, len(curves.runs)))
    return new_figure(width, height + 0.17 * rows, n_rows, n_columns, **options)


def _legend_columns(width, longest, n_entries):
    """How many names of `longest` letters stand side by side in `width` inches."""
    return max(1, min(n_entries, int(width / (0.075 * longest + 0.6))))


def _short(name):
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 3]}..."


def _line(axes, number, points, *, label, linewidth=1.3):
    """The line of a run: colours repeat after seven, then with another dash, marker and hollow markers."""
    cycle = number // len(COLOURS)
    many = len(points) > 1 / MARKER_EVERY
    axes.plot(
        [tokens for tokens, _ in points],
        [value for _, value in points],
        color=colour(number),
        linestyle=LINES[cycle % len(LINES)],
        linewidth=linewidth,
        marker=MARKERS[(number + 3 * cycle) % len(MARKERS)],
        markersize=4.5,
        markerfacecolor="white" if cycle % 2 else colour(number),
        markevery=(MARKER_EVERY * (number % 5) / 5, MARKER_EVERY) if many else None,
        label=label,
    )


RING = {
    "marker": "o",
    "markersize": 11,
    "markerfacecolor": "none",
    "markeredgewidth": 1.4,
    "linestyle": "none",
    "clip_on": False,
}


def _ring(axes, number, points):
    for tokens, value in points:
        axes.plot([tokens], [value], markeredgecolor=colour(number), **RING)


def _ring_legend(figure):
    """What the rings mean, below all axes."""
    from matplotlib.lines import Line2D

    label = f"recall appears: {RECALL_MARGIN:g} nat below rare first occurrences"
    ring = Line2D([], [], markeredgecolor="#555555", **RING)
    figure.legend([ring], [label], loc="outside lower center")


def _token_scale(axes, tokens):
    """One axis of tokens seen for all `axes`: logarithmic over a wide span, else from 0."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    from recallgap.report.text import compact

    first, last = min((t for t in tokens if t), default=1), max(tokens)
    for part in axes:
        if last >= LOG_FROM * first:
            part.set_xlim(first / 1.1, last * 1.1)
            log_scale(part.xaxis)
        else:
            part.set_xlim(0, max(1.04 * last, 1))
            part.xaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 5, 10]))
            part.xaxis.set_major_formatter(FuncFormatter(lambda value, _: compact(value)))


def _legend(figure, axes):
    """One legend of the runs, above all axes."""
    handles, labels = axes.get_legend_handles_labels()
    columns = _legend_columns(figure.get_figwidth(), max(map(len, labels)), len(labels))
    figure.legend(handles, labels, loc="outside upper center", ncols=columns, handlelength=3)
