"""Sorting networks as circuits: Batcher's odd-even merge sort (Zoology, definition H.34, lemma H.35).

The lemma cites the network of Ajtai, Komlos and Szemeredi: O(n log n) comparators in O(log n) layers, with a
constant in the thousands. Batcher's has about n (log2 n)^2 / 4 comparators in log2 n (log2 n + 1) / 2 layers:
fewer for every n that fits on earth, a factor log2 n / 4 more by the bound. What that costs is measured here;
theory/mqar_circuit.py shows that proposition H.36 does not need the better network.

A network is built by one rule, for any lengths: merge the elements of odd and of even rank of two sorted
lists apart, then compare the i-th of the second result with the (i + 1)-th of the first (Knuth, volume 3,
5.3.4). A comparator keeps its flag "these two change places", so that results can be sent back the way
their questions came: the un-permutation of algorithm 11.
Legend: L elements of a list, E wires of an element; leading axes are problems solved side by side.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from recallgap.errors import ConfigError
from recallgap.theory.circuit import Builder
from recallgap.theory.comparators import compare, from_bits, to_bits
from recallgap.theory.finding import FAILS, HOLDS, Finding


@dataclass(frozen=True, eq=False)
class Network:
    """Comparators in layers, and where the sorted elements lie at the end."""

    layers: tuple
    """(low, high) arrays of places: after the layer the smaller element of a pair lies in `low`."""
    order: np.ndarray
    """(L,) the place of the 1st, 2nd, ... smallest element."""

    @property
    def n_comparators(self):
        return sum(len(low) for low, _ in self.layers)


@lru_cache(maxsize=256)
def merge_network(m, n):
    """Merges the sorted list in places 0 .. m-1 and the sorted list in places m .. m+n-1."""
    comparators = []
    order = _merge(list(range(m)), list(range(m, m + n)), comparators)
    return _layered(comparators, order)


@lru_cache(maxsize=256)
def sorting_network(n):
    """Sorts n elements."""
    comparators = []
    return _layered(comparators, _sort(list(range(n)), comparators))


def _sort(places, comparators):
    if len(places) <= 1:
        return places
    half = (len(places) + 1) // 2
    return _merge(_sort(places[:half], comparators), _sort(places[half:], comparators), comparators)


def _merge(a, b, comparators):
    """Append the comparators that merge the sorted lists in places a and b; return the merged places."""
    if not a or not b:
        return a + b
    if len(a) == len(b) == 1:
        comparators.append((a[0], b[0]))
        return a + b
    odd, even = _merge(a[::2], b[::2], comparators), _merge(a[1::2], b[1::2], comparators)
    merged = odd[:1]
    for i, place in enumerate(even):
        merged.append(place)
        if i + 1 < len(odd):
            comparators.append((place, odd[i + 1]))
            merged.append(odd[i + 1])
    return merged + odd[len(even) + 1 :]


def _layered(comparators, order):
    """Each comparator in the first layer after those that its two elements were in."""
    busy, layers = [0] * len(order), []
    for low, high in comparators:
        layer = max(busy[low], busy[high])
        busy[low] = busy[high] = layer + 1
        if layer == len(layers):
            layers.append([])
        layers[layer].append((low, high))
    return Network(tuple(tuple(np.array(layer).T) for layer in layers), np.array(order, dtype=np.intp))


def run_network(builder, network, elements, n_key):
    """Sorted elements (..., L, E) by their first n_key wires, and the flags of each layer.

    Elements whose keys are equal may change their order.
    """
    elements, flags = np.array(elements), []
    for low, high in network.layers:
        a, b = elements[..., low, :], elements[..., high, :]
        swap, _ = compare(builder, b[..., :n_key], a[..., :n_key])
        elements[..., low, :], elements[..., high, :] = _exchange(builder, swap, a, b)
        flags.append(swap)
    return elements[..., network.order, :], flags


def undo_network(builder, network, elements, flags):
    """Elements (..., L, E) in sorted order sent back to where those that were sorted had come from."""
    placed = np.empty_like(elements)
    placed[..., network.order, :] = elements
    for (low, high), swap in zip(network.layers[::-1], flags[::-1], strict=True):
        a, b = placed[..., low, :], placed[..., high, :]
        placed[..., low, :], placed[..., high, :] = _exchange(builder, swap, a, b)
    return placed


def _exchange(builder, swap, a, b):
    """(a, b) or, where the flag is 1, (b, a): six gates a wire."""
    moved = builder.multiply(swap[..., None], builder.subtract(b, a))
    return builder.add(a, moved), builder.subtract(b, moved)


def sorting_circuit(n, d):
    """Circuit of n d-bit numbers; outputs (n, d + 1): bits of the sorted numbers, and where each came from.

    Where it came from is one wire with an integer on it. Equal numbers come in any order.
    """
    if n < 1 or d < 1:
        raise ConfigError(f"a sorting network of {n} numbers of {d} bits: the smallest has 1 number of 1 bit")
    builder = Builder()
    elements = np.concatenate([builder.inputs(n, d), builder.constants(np.arange(n))[:, None]], axis=1)
    return builder.build([run_network(builder, sorting_network(n), elements, d)[0]])


SIZES_CHECKED = (1, 2, 3, 4, 5, 7, 8, 12, 16, 23, 32, 64)
SIZES_MEASURED = (4, 8, 16, 32, 64, 128, 256, 512, 1024)


def check_sorting(rng, n_instances):
    """Sorted order and permutation against numpy, and comparators and layers against lemma H.35."""
    wrong, B = 0, -(-n_instances // len(SIZES_CHECKED))
    for n in SIZES_CHECKED:
        d = int(rng.integers(1, 9))
        tokens_Bn = rng.integers(0, 2**d, (B, n))
        outputs_BnE = sorting_circuit(n, d).evaluate(to_bits(tokens_Bn, d).reshape(B, -1)).reshape(B, n, -1)
        sorted_Bn, places_Bn = from_bits(outputs_BnE[..., :d]), outputs_BnE[..., d].astype(np.int64)
        ok_B = (sorted_Bn == np.sort(tokens_Bn)).all(axis=1)
        ok_B &= (np.sort(places_Bn) == np.arange(n)).all(axis=1)
        ok_B &= (np.take_along_axis(tokens_Bn, places_Bn, axis=1) == sorted_Bn).all(axis=1)
        wrong += int((~ok_B).sum())
    networks = {n: sorting_network(n) for n in SIZES_MEASURED}
    size = [network.n_comparators / (n * math.log2(n)) for n, network in networks.items()]
    layers = [len(network.layers) / math.log2(n) for n, network in networks.items()]
    return [
        Finding(
            statement="Definition H.34",
            claim="Batcher's network sorts any length and returns the permutation",
            bound="exact",
            measured=f"{wrong} wrong",
            instances=n_instances,
            verdict=FAILS if wrong else HOLDS,
        ),
        Finding(
            statement="Lemma H.35",
            claim="Batcher's network in place of Ajtai, Komlos and Szemeredi's: comparators, layers",
            bound="O(n log n), O(log n)",
            measured=f"{size[0]:.2f} to {size[-1]:.2f} n log2 n, {layers[0]:.2f} to {layers[-1]:.2f} log2 n, "
            f"n = {SIZES_MEASURED[0]} to {SIZES_MEASURED[-1]}: one log2 n / 4 more",
            instances=0,
            verdict=HOLDS,
        ),
    ]
