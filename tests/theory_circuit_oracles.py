"""Circuits and searches read literally: one gate, one query at a time."""

from itertools import pairwise

from recallgap.theory.circuit import ADD


def oracle_evaluate(circuit, inputs):
    """Outputs of one input, gate by gate, in Python's own numbers."""
    values = [*inputs, *circuit.constants.tolist()]
    for kind, left, right in zip(circuit.kind, circuit.left, circuit.right, strict=True):
        a, b = values[left], values[right]
        values.append(a + b if kind == ADD else a * b)
    return [values[wire] for wire in circuit.outputs]


def oracle_measure(circuit):
    """(n, size, depth, width): longest path by recursion over the gates, width by counting every cut."""
    first = circuit.n_inputs + len(circuit.constants)
    level = [0] * first
    for left, right in zip(circuit.left, circuit.right, strict=True):
        level.append(1 + max(level[left], level[right]))
    depth = max(level, default=0)
    cuts = []
    for cut in range(depth + 1):
        carried = {int(wire) for wire in circuit.outputs if level[wire] <= cut}
        for gate, operands in enumerate(zip(circuit.left, circuit.right, strict=True)):
            if level[first + gate] > cut:
                carried |= {int(wire) for wire in operands if level[wire] <= cut}
        cuts.append(len(carried))
    return circuit.n_inputs, len(circuit.kind), depth, max(cuts)


def oracle_pbs(queries, keys):
    """For each query the last index of an equal key, or the number of keys."""
    return [max((j for j, key in enumerate(keys) if key == query), default=len(keys)) for query in queries]


def oracle_run_network(network, items):
    """The list after the network's comparators, one at a time."""
    items = list(items)
    for lows, highs in network.layers:
        for low, high in zip(lows, highs, strict=True):
            if items[high] < items[low]:
                items[low], items[high] = items[high], items[low]
    return [items[place] for place in network.order]


def is_sorted(items):
    return all(a <= b for a, b in pairwise(items))
