"""An exact table of n-grams: a hash table for each order, whose keys say where the prefix was found.

An n-gram is (its prefix of n - 1 tokens, its last token), so its key is the slot of the prefix in the table
of order n - 1, shifted by 32 bits, and the last token. The prefix of a bigram is a token, which stands for
itself. Keys of any order and vocabulary thus fit 64 bits and are compared whole: nothing is approximate.

Four (key, value) pairs fill one cache line, so a look-up costs about one cache miss. Its address is asked
for AHEAD look-ups before it is needed, and neither finding nor missing a key is a branch.

Legend: K keys, S slots, B a batch of positions, Q queries; a trailing 2 is a (key, value) pair.
"""

from types import MappingProxyType

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from recallgap.errors import CountsError

EMPTY = np.uint64((1 << 64) - 1)
"""No n-gram has this key, because token ids end below 2^31."""
BORDER = np.uint32(1 << 31)
"""Set on a token, it ends no n-gram. Whatever starts at the token is not affected."""
TOKEN = np.uint64((1 << 32) - 1)
"""The bits of a key that hold its last token."""
UNMARKED = np.uint32((1 << 31) - 1)
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
ZERO, ONE, TWO, THREE, FOUR, HALF = (np.uint64(n) for n in (0, 1, 2, 3, 4, 32))
BATCH = 4096
"""Positions whose n-grams are counted order by order: their keys stay in the fastest cache."""
AHEAD = 32
MAX_SLOT_BITS = 31
"""Of a table. The prefix of a key has 32 bits, and one value of them, that of EMPTY, must be no slot."""


@intrinsic
def prefetch(typing, slots_S2, slot):  # noqa: ARG001
    """Ask for the cache line of `slots_S2[slot]`, without waiting for it."""

    def generate(context, builder, signature, arguments):
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        pair = builder.shl(arguments[1], ir.Constant(arguments[1].type, 1))
        byte, i32 = ir.IntType(8).as_pointer(), ir.IntType(32)
        address = builder.bitcast(builder.gep(array.data, [pair]), byte)
        kind = ir.FunctionType(ir.VoidType(), [byte, i32, i32, i32])
        function = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        builder.call(function, [address, i32(0), i32(3), i32(1)])
        return context.get_dummy_value()

    return types.void(slots_S2, slot), generate


@njit(nogil=True, cache=True)
def _fill(slots_S2, shift, keys_K, values_K):
    """Store distinct keys with their values; returns the slot of each."""
    slot_of_K = np.empty(len(keys_K), np.uint64)
    mask = np.uint64(len(slots_S2) - 1)
    for i in range(len(keys_K)):
        slot = ((keys_K[i] * MULTIPLIER) >> shift) << TWO
        while slots_S2[slot, 0] != EMPTY:
            slot = (slot + ONE) & mask
        slots_S2[slot, 0], slots_S2[slot, 1] = keys_K[i], values_K[i]
        slot_of_K[i] = slot
    return slot_of_K


@njit(nogil=True, cache=True)
def _probe(slots_S2, shift, key):
    """(slot, 1) of a key that is there, (any slot of the last line read, 0) of one that is not."""
    line = ((key * MULTIPLIER) >> shift) << TWO
    while True:
        second = np.uint64(slots_S2[line + ONE, 0] == key)
        third = np.uint64(slots_S2[line + TWO, 0] == key)
        fourth = np.uint64(slots_S2[line + THREE, 0] == key)
        slot = line + second + third * TWO + fourth * THREE
        found = np.uint64(slots_S2[slot, 0] == key)
        if (found | np.uint64(slots_S2[line + THREE, 0] == EMPTY)) != ZERO:
            return slot, found
        line = (line + FOUR) & np.uint64(len(slots_S2) - 1)


@njit(nogil=True, cache=True)
def _find(slots_S2, shift, keys_Q):
    """The slot of each key, EMPTY where it is not in the table."""
    slots_Q = np.empty(len(keys_Q), np.uint64)
    for i in range(len(keys_Q)):
        ahead = keys_Q[min(i + AHEAD, len(keys_Q) - 1)]
        prefetch(slots_S2, ((ahead * MULTIPLIER) >> shift) << TWO)
        slot, found = _probe(slots_S2, shift, keys_Q[i])
        slots_Q[i] = slot if found else EMPTY
    return slots_Q


@njit(nogil=True, cache=True)
def _add_found(slots_S2, shift, keys_B, at_B, n):
    """Add 1 to each of n keys that is in the table. Moves the slots and positions of these to the front."""
    kept = 0
    for i in range(n):
        prefetch(slots_S2, ((keys_B[i + AHEAD] * MULTIPLIER) >> shift) << TWO)
        slot, found = _probe(slots_S2, shift, keys_B[i])
        slots_S2[slot, 1] += found
        keys_B[kept] = slot
        at_B[kept] = at_B[i]
        kept += np.int64(found)
    return kept


@njit(nogil=True, cache=True)
def _add_starts(tables, shifts, lowest, tokens, n_starts):
    """Add 1 to the n-grams of every order, `lowest` and up, at each of the first n_starts tokens."""
    keys_B, at_B = np.zeros(BATCH + AHEAD, np.uint64), np.empty(BATCH, np.uint32)
    for first in range(0, n_starts, BATCH):
        n_first = min(BATCH, n_starts - first)
        n = n_first
        for k in range(len(tables)):
            order = lowest + k
            if order <= 2:
                n = n_first
                for i in range(n):
                    at_B[i] = first + i
                    keys_B[i] = np.uint64(tokens[first + i] & UNMARKED)
            if order >= 2:
                for i in range(n):
                    keys_B[i] = keys_B[i] << HALF | np.uint64(tokens[at_B[i] + order - 1])
            n = _add_found(tables[k], shifts[k], keys_B, at_B, n)


class HashTable:
    """Values of distinct u64 keys. At most half full, so 32 to 64 bytes a key."""

    def __init__(self, keys_K, values_K):
        bits = max(2 * len(keys_K) - 1, 7).bit_length()
        if bits > MAX_SLOT_BITS:
            raise CountsError(
                f"counting {len(keys_K):,} distinct n-grams of one order: a table holds at most "
                f"{1 << (MAX_SLOT_BITS - 1):,}; take a smaller evaluation corpus"
            )
        self.shift = np.uint64(64 - bits + 2)
        self.slots_S2 = _aligned(1 << bits)
        self.slots_S2[:, 0], self.slots_S2[:, 1] = EMPTY, 0
        self.slot_of_K = _fill(self.slots_S2, self.shift, keys_K, values_K)

    def find(self, keys_Q):
        """The slot of each key, EMPTY where it is not in the table."""
        return _find(self.slots_S2, self.shift, np.ascontiguousarray(keys_Q))


def _aligned(n):
    """n pairs of uint64, unset, such that every four of them share a cache line."""
    raw = np.empty(2 * n + 8, np.uint64)
    start = -raw.ctypes.data % 64 // 8
    return raw[start : start + 2 * n].reshape(n, 2)


class NGramTable:
    """Values of n-grams, order by order.

    keys: {order: sorted uint64 keys as in a counts artifact}, all orders from 2 up and 1 where wanted.
    values: {order: uint64 values}; an order that is left out has zeros.
    """

    def __init__(self, keys, values=MappingProxyType({})):
        self.lowest, self.highest = min(keys), max(keys)
        self.tables = {}
        for order, keys_K in sorted(keys.items()):
            values_K = values.get(order, np.zeros(len(keys_K), np.uint64))
            if order > 2:
                prefix_K = self.tables[order - 1].slot_of_K[keys_K >> HALF]
                keys_K = prefix_K << HALF | keys_K & TOKEN
            self.tables[order] = HashTable(np.ascontiguousarray(keys_K), np.ascontiguousarray(values_K))

    def values(self, order):
        """The values of one order, in the order of its keys."""
        table = self.tables[order]
        return table.slots_S2[table.slot_of_K, 1]

    def lookup(self, ids_Qn):
        """(values, found) of n-grams of token ids; a value means nothing where the n-gram was not found."""
        n = ids_Qn.shape[1]
        slots_Q = ids_Qn[:, 0].astype(np.uint64)
        if n == 1:
            slots_Q = self.tables[1].find(slots_Q)
        for order in range(2, n + 1):
            keys_Q = slots_Q << HALF | ids_Qn[:, order - 1].astype(np.uint64)
            slots_Q = self.tables[order].find(keys_Q)
        found_Q = slots_Q != EMPTY
        slots_S2 = self.tables[n].slots_S2
        return slots_S2[np.where(found_Q, slots_Q, ZERO), 1], found_Q

    def counter(self):
        """Slots of its own to count in, all zero, as `add` needs them; one for each thread."""
        tables = []
        for table in self.tables.values():
            slots_S2 = _aligned(len(table.slots_S2))
            slots_S2[:, 0], slots_S2[:, 1] = table.slots_S2[:, 0], 0
            tables.append(slots_S2)
        return tuple(tables)

    def add(self, counter, tokens, n_starts):
        """Count in `counter` every n-gram that starts at one of the first n_starts of `tokens` (uint32).

        A token with the BORDER bit ends no n-gram. `tokens` goes on for the highest order - 1 tokens more.
        """
        shifts = np.array([table.shift for table in self.tables.values()])
        _add_starts(counter, shifts, self.lowest, tokens, n_starts)

    def counted(self, counter, order):
        """What was counted for each key of one order."""
        index = order - self.lowest
        return counter[index][self.tables[order].slot_of_K, 1]
