"""How names and numbers are written for a reader."""

import math


def shown(name):
    """A name from outside in one printable line.

    >>> shown("a\\nb\\u202ec"), shown("")
    ('a b c', '(no name)')
    """
    line = " ".join("".join(c if c.isprintable() else " " for c in str(name)).split())
    return line or "(no name)"


def compact(number):
    """A count in few characters.

    >>> compact(317), compact(3163), compact(10_000), compact(124_000_000)
    ('317', '3.2k', '10k', '124M')
    """
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.2g}{unit}" if number < 10 * size else f"{number / size:.0f}{unit}"
    return f"{number:g}"


def percent(fraction):
    return f"{_tenths(fraction)} %"


def _tenths(fraction):
    """Per cent with one decimal, and never "-0.0"."""
    return f"{round(100 * fraction, 1) + 0.0:.1f}"


def signed(nats):
    """A gap in nats, with its sign."""
    return "-" if nats is None else f"{round(nats, 4) + 0.0:+.4f}"


def perplexity(loss):
    """The perplexity of a loss (`Interval`) as the paper prints it, ln in parentheses, and its interval."""
    if loss.estimate is None:
        return "-"
    text = f"{_exp(loss.estimate)} ({loss.estimate:.2f})"
    return text if loss.low is None else f"{text} [{_exp(loss.low)}, {_exp(loss.high)}]"


def _exp(loss):
    value = math.exp(min(loss, 700))
    if value < 1000:
        return f"{value:.2f}"
    return f"{value:,.0f}" if value < 1e6 else f"{value:.3g}"


def gap(interval):
    """A gap or contribution in nats with its interval."""
    text = signed(interval.estimate)
    return text if interval.low is None else f"{text} [{signed(interval.low)}, {signed(interval.high)}]"


def share(found, *, cap):
    """A share (`ShareSet`) with its set. cap: print shares within 0 and 100 %, as the paper's table does."""
    if found.kind == "unknown" and found.estimate is not None:
        return percent(_capped(found.estimate, cap))
    if found.kind != "interval":
        return "undefined"
    low, high = (_tenths(_capped(end, cap)) for end in (found.low, found.high))
    return f"{percent(_capped(found.estimate, cap))} [{low}, {high}]"


def _capped(fraction, cap):
    return min(max(fraction, 0.0), 1.0) if cap else fraction
