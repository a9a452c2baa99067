"""Arithmetic circuits: built by blocks, evaluated by levels, measured (Zoology, definition H.1).

A circuit is a directed acyclic graph of gates of fan-in 2, `+` and `x`, over variables and constants; a - b
is a + (-1) x b, two gates. Every wire has a number: first the inputs, then the constants, then the gates,
sorted by level and within a level additions before multiplications:

    level of an input or a constant = 0,    level of a gate = 1 + the larger level of its two operands.

An (n, s, depth, w)-circuit has n variables, s gates, a longest path of `depth` gates, and width w: of all
horizontal cuts, one below each level, the most wires that one cuts. A wire is cut below level l when it is
made at a level <= l and read at a level > l, or is an output; it counts once however often it is read. So a
value that must be carried past levels counts at each of them, which is what a machine that works through the
levels (such as the layers of a BaseConv model, theorem H.21) has to hold; counting only the gates of a level
would hide that memory. Constants count like variables. No gate is moved to a later level to save width.

    >>> builder = Builder()
    >>> x_3, y_3 = builder.inputs(3), builder.inputs(3)  # arrays of wire numbers
    >>> products_3 = builder.multiply(x_3, y_3)  # a block: one gate an entry, operands broadcast
    >>> circuit = builder.build([builder.sum(products_3), builder.subtract(x_3[0], y_3[0])])
    >>> circuit.evaluate(np.array([[1, 2, 3, 4, 5, 6]])).tolist()  # a batch of one
    [[32, -3]]
    >>> circuit.measure()
    Measure(n=6, size=7, depth=3, width=7)

Legend: B batch, n variables, G gates, W wires = variables + constants + gates, O outputs.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from recallgap.errors import ConfigError

ADD, MULTIPLY = 0, 1
_INPUT, _CONSTANT = 2, 3  # kinds of wires that are not gates, while building
FIRST_CAPACITY = 1024


@dataclass(frozen=True)
class Measure:
    """The four numbers of an (n, s, depth, w)-circuit."""

    n: int
    size: int
    depth: int
    width: int


@dataclass(frozen=True, eq=False)
class Circuit:
    """Gates in arrays: gate g makes wire n_inputs + len(constants) + g of the wires left[g] and right[g]."""

    n_inputs: int
    """Wires 0, 1, ... are the variables, in the order in which the builder was asked for them."""
    constants: np.ndarray
    """Values of the wires n_inputs, n_inputs + 1, ...: integers, or Fractions (dtype object)."""
    kind: np.ndarray
    """(G,) ADD or MULTIPLY."""
    left: np.ndarray
    """(G,) wire."""
    right: np.ndarray
    """(G,) wire."""
    level: np.ndarray
    """(G,) ascending, from 1."""
    outputs: np.ndarray
    """(O,) wires; an input or a constant may be one, and a wire may be several."""

    @property
    def first_gate(self):
        """Wire of gate 0."""
        return self.n_inputs + len(self.constants)

    @property
    def depth(self):
        return int(self.level[-1]) if len(self.level) else 0

    @cached_property
    def runs(self):
        """(kind, first gate, end) of the gates that can be computed at once, in order of levels."""
        breaks = np.flatnonzero(np.diff(2 * self.level + self.kind)) + 1
        borders = [0, *breaks.tolist(), len(self.kind)]
        return [(int(self.kind[a]), a, b) for a, b in pairwise(borders) if a < b]

    def evaluate(self, inputs_Bn):
        """Outputs (B, O) of a batch of inputs, in the inputs' number type.

        Fixed-width integers wrap where a value leaves their range; with dtype object (int, Fraction) all
        values are exact.
        """
        inputs_Bn = np.asarray(inputs_Bn)
        if inputs_Bn.ndim != 2 or inputs_Bn.shape[1] != self.n_inputs:
            raise ConfigError(
                f"evaluating a circuit of {self.n_inputs} variables: got inputs of shape {inputs_Bn.shape}, "
                f"expected (batch, {self.n_inputs})"
            )
        B, first = len(inputs_Bn), self.first_gate
        values_WB = np.empty((first + len(self.kind), B), dtype=inputs_Bn.dtype)
        values_WB[: self.n_inputs] = inputs_Bn.T
        values_WB[self.n_inputs : first] = self.constants[:, None]
        for kind, a, b in self.runs:
            operate = np.add if kind == ADD else np.multiply
            left, right = values_WB[self.left[a:b]], values_WB[self.right[a:b]]
            operate(left, right, out=values_WB[first + a : first + b])
        return values_WB[self.outputs].T

    def alive(self):
        """(depth + 1,) wires that the cut below level 0, 1, ..., depth cuts."""
        first, end = self.first_gate, self.depth + 1
        born_W = np.concatenate([np.zeros(first, self.level.dtype), self.level])
        read_W = np.zeros_like(born_W)  # the last level at which a wire is read
        other_W = np.zeros_like(born_W)
        read_W[self.left] = self.level  # levels ascend, and of equal places the last assignment stays
        other_W[self.right] = self.level
        np.maximum(read_W, other_W, out=read_W)
        read_W[self.outputs] = end
        used = read_W > born_W
        born, died = (np.bincount(x_W[used], minlength=end + 1)[: end + 1] for x_W in (born_W, read_W))
        return np.cumsum(born - died)[:end]

    def measure(self):
        return Measure(self.n_inputs, len(self.kind), self.depth, int(self.alive().max()))


class Builder:
    """Makes a circuit block by block; every method takes and returns arrays of wire numbers.

    The numbers are the builder's own: `build` renumbers them, and drops gates that no output needs.
    """

    def __init__(self):
        self._n_wires = 0
        self._kind, self._level = np.empty(0, np.uint8), np.empty(0, np.int32)
        self._left, self._right = np.empty(0, np.int32), np.empty(0, np.int32)
        self._constants = {}

    def inputs(self, *shape):
        """New variables."""
        return self._new(_INPUT, 0, 0, 0, shape)

    def constant(self, value):
        """The wire of a constant; equal values share one."""
        if value not in self._constants:
            self._constants[value] = self._new(_CONSTANT, 0, 0, 0, ())
        return self._constants[value]

    def constants(self, values):
        """Wires of an array of constants."""
        distinct, place = np.unique(np.asarray(values), return_inverse=True)
        wires = np.array([self.constant(value) for value in distinct.tolist()], dtype=np.int32)
        return wires[place].reshape(np.shape(values))

    def add(self, left, right):
        """left + right, one gate an entry."""
        return self._gates(ADD, left, right)

    def multiply(self, left, right):
        """left x right, one gate an entry."""
        return self._gates(MULTIPLY, left, right)

    def subtract(self, left, right):
        """left - right, two gates an entry."""
        return self.add(left, self.multiply(self.constant(-1), right))

    def sum(self, wires):
        """Sum over the last axis, as a balanced tree of len - 1 additions."""
        wires = np.asarray(wires)
        while (m := wires.shape[-1]) > 1:
            paired = self.add(wires[..., : m - 1 : 2], wires[..., 1:m:2])
            wires = np.concatenate([paired, wires[..., m - m % 2 :]], axis=-1)
        return wires[..., 0]

    def build(self, outputs):
        """The circuit of these output wires (an array of any shape, or a list of arrays, read in order)."""
        outputs = np.concatenate([np.ravel(wires) for wires in outputs]).astype(np.int32)
        kind, level = self._kind[: self._n_wires], self._level[: self._n_wires]
        gates = np.flatnonzero(kind <= MULTIPLY)
        rank = 2 * level[gates] + kind[gates]
        rank = rank.astype(np.min_scalar_type(rank.max(initial=0)))  # 16 bits are sorted by radix
        gates = gates[np.argsort(rank, kind="stable")].astype(np.int32)
        gates = gates[self._needed(gates, outputs)[gates]]
        inputs = np.flatnonzero(kind == _INPUT)
        constants = np.flatnonzero(kind == _CONSTANT)
        number = np.empty(self._n_wires, np.int32)
        wires = np.concatenate([inputs, constants, gates])
        number[wires] = np.arange(len(wires), dtype=np.int32)
        return Circuit(
            n_inputs=len(inputs),
            constants=np.array(list(self._constants)),  # made in the order of their wires
            kind=kind[gates],
            left=number[self._left[gates]],
            right=number[self._right[gates]],
            level=level[gates],
            outputs=number[outputs],
        )

    def _needed(self, gates, outputs):
        """Which wires the outputs depend on; `gates` ascend by level."""
        needed = np.zeros(self._n_wires, bool)
        needed[outputs] = True
        borders = [*np.flatnonzero(np.diff(self._level[gates], prepend=0)).tolist(), len(gates)]
        for a, b in reversed(list(pairwise(borders))):
            of_level = gates[a:b][needed[gates[a:b]]]
            needed[self._left[of_level]] = True
            needed[self._right[of_level]] = True
        return needed

    def _gates(self, kind, left, right):
        left, right = np.broadcast_arrays(left, right)
        level = 1 + np.maximum(self._level[left], self._level[right])
        return self._new(kind, level, left, right, left.shape)

    def _new(self, kind, level, left, right, shape):
        start, end = self._n_wires, self._n_wires + int(np.prod(shape, dtype=np.int64))
        if end > len(self._kind):
            capacity = max(2 * len(self._kind), end, FIRST_CAPACITY)
            for name in ("_kind", "_level", "_left", "_right"):
                grown = np.empty(capacity, getattr(self, name).dtype)
                grown[:start] = getattr(self, name)[:start]
                setattr(self, name, grown)
        new = slice(start, end)
        self._kind[new] = kind
        self._level[new] = np.ravel(level)
        self._left[new], self._right[new] = np.ravel(left), np.ravel(right)
        self._n_wires = end
        return np.arange(start, end, dtype=np.int32).reshape(shape)
