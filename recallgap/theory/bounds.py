"""What propositions H.33 and H.36 (Zoology) promise, without their constants, and how measures compare.

Logarithms are of base 2. A proposition holds where measure / bound stays below a constant as N and d grow.
"""

from math import log2

QUANTITIES = ("size", "depth", "width")


def h33_bounds(n, m, d):
    """pbs-key-values of n queries in m keys of d bits; n, m, d >= 2 (at n = 1 the printed depth is 0)."""
    return {
        "size": n * d * (log2(m) + log2(n)),
        "depth": log2(n) * (log2(m) + log2(n) * log2(d)),
        "width": n * d,
    }


def h36_bounds(N, d):
    """MQAR of N tokens of d >= 2 bits."""
    return {"size": N * d * log2(N) ** 2, "depth": log2(d) * log2(N) ** 2, "width": N * d * log2(N)}


def ratios(measure, bounds):
    """Measure over bound, by quantity."""
    return {quantity: getattr(measure, quantity) / bounds[quantity] for quantity in QUANTITIES}


def spread(rows):
    """Smallest to largest ratio of each quantity, as text."""
    parts = []
    for quantity in QUANTITIES:
        found = [row[quantity] for row in rows]
        parts.append(f"{quantity} {min(found):.2g} to {max(found):.2g}")
    return ", ".join(parts)
