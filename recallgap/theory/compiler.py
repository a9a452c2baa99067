"""From an arithmetic circuit to a BaseConv program with the same outputs (Zoology, 2312.04927, theorem H.21).

The circuit's inputs are the rows of a single column. After each level the rows of the columns' sum are the
wires that a later level or the output still needs (`Circuit.alive` counts them, and constants too, which are
weights here). One level becomes

    route         each operand to the row of its reader: left ones to rows 0, 1, .., right ones to N'/2, ..
                  (`routing.route`, two layers a factor)
    spread        1 layer: constants enter by b1, masks by b2; column 0 keeps the left operands of products,
                  column 1 their right ones, column 2 the operands of sums and what only waits
    operate       1 layer, one shift up by N'/2: column 1 is column 0 (through W) times the shifted column 1,
                  a product; column 2 is itself plus itself shifted, a running sum

which is 2 (5 m - 3) + 2 layers, N' = 2^m for 2^(m-1) wires, and d' = 3: O(depth log w) layers in all, and one
that gathers the output. Operands come from anywhere, below as well as above, so rows must go up: the cyclic
form is needed. A causal layer's row i sees rows up to i only, so no causal program of any depth has an output
above an input it depends on (erratum: the theorem cannot hold for causal layers with inputs in given rows).
Legend: N rows of the workspace, R wires alive after a level, B batch, n inputs, O outputs.
"""

from dataclasses import dataclass

import numpy as np

from recallgap.errors import ConfigError
from recallgap.theory.base_conv import Filter, Program, layer, random_layer
from recallgap.theory.butterfly import ALL, COLUMNS, factor_layers
from recallgap.theory.circuit import ADD, Builder
from recallgap.theory.comparators import comparator_circuit
from recallgap.theory.finding import ERRATUM, FAILS, HOLDS, Finding
from recallgap.theory.mqar import KINDS, answers, random_triples
from recallgap.theory.mqar_circuit import mqar_circuit, solve
from recallgap.theory.routing import NOWHERE, route, route_length, rows_for
from recallgap.theory.sorting import sorting_circuit

PRODUCT, SUM = 1, 2
"""The columns in which results stand."""


@dataclass(frozen=True)
class Level:
    """What each row becomes: a gate's result, or a wire that waits (only a left operand)."""

    left_R: np.ndarray
    """Wire."""
    right_R: np.ndarray
    """Wire, or NOWHERE."""
    multiplies_R: np.ndarray
    wires_R: np.ndarray
    """The wire that stands in each row afterwards."""


def compile_circuit(circuit):
    """The program; its input is (B, n, 1), its output (B, O, 1)."""
    if circuit.n_inputs == 0 or len(circuit.outputs) == 0:
        raise ConfigError(
            f"compiling a circuit of {circuit.n_inputs} inputs and {len(circuit.outputs)} outputs: "
            "a BaseConv program reads and writes at least one row"
        )
    levels = levels_of(circuit)
    N = _rows(circuit, levels)
    layers, row_of = [], np.full(circuit.first_gate + len(circuit.kind), NOWHERE)
    row_of[: circuit.n_inputs] = np.arange(circuit.n_inputs)
    for level in levels:
        layers += _level_layers(circuit, level, row_of, N)
        row_of[level.wires_R] = np.arange(len(level.wires_R))
    first_column = np.array([[1, 0, 0]], np.int8)
    layers.append(layer(N, COLUMNS, W=ALL, b2=first_column))
    return Program((circuit.n_inputs, 1), tuple(layers), (len(circuit.outputs), 1))


def _rows(circuit, levels):
    return rows_for(max(circuit.n_inputs, *(2 * len(level.wires_R) for level in levels)))


def count_layers(circuit):
    """Layers of the program, without making it."""
    levels = levels_of(circuit)
    return len(levels) * (2 * route_length(_rows(circuit, levels)) + 2) + 1


def levels_of(circuit):
    """The levels in order; the rows of the last are the outputs. Constants never wait: they are weights."""
    first, depth = circuit.first_gate, max(circuit.depth, 1)
    born_W = np.concatenate([np.zeros(first, np.int64), circuit.level])
    read_W = np.zeros_like(born_W)
    for operands in (circuit.left, circuit.right):
        np.maximum.at(read_W, operands, circuit.level)
    read_W[circuit.outputs] = depth + 1
    read_W[circuit.n_inputs : first] = 0
    levels = []
    for now in range(1, depth + 1):
        wires_R = np.flatnonzero((born_W <= now) & (read_W > now)) if now < depth else circuit.outputs
        new_R = (born_W[wires_R] == now) & (wires_R >= first)
        left_R, right_R = wires_R.copy(), np.full(len(wires_R), NOWHERE)
        gates = wires_R[new_R] - first
        left_R[new_R], right_R[new_R] = circuit.left[gates], circuit.right[gates]
        multiplies_R = new_R.copy()
        multiplies_R[new_R] = circuit.kind[gates] != ADD
        levels.append(Level(left_R, right_R, multiplies_R, wires_R))
    return levels


def _level_layers(circuit, level, row_of, N):
    R, half = len(level.wires_R), N // 2
    operand_N = np.full(N, NOWHERE)
    operand_N[:R], operand_N[half : half + R] = level.left_R, level.right_R
    is_constant_N = (operand_N >= circuit.n_inputs) & (operand_N < circuit.first_gate)
    routed_N = np.where(is_constant_N | (operand_N == NOWHERE), NOWHERE, row_of[operand_N])
    constant_N = np.zeros(N, circuit.constants.dtype)
    constant_N[is_constant_N] = circuit.constants[operand_N[is_constant_N] - circuit.n_inputs]

    masks_N3 = np.zeros((N, COLUMNS), np.int8)
    masks_N3[:R, 0] = masks_N3[half : half + R, PRODUCT] = level.multiplies_R
    masks_N3[:R, SUM] = masks_N3[half : half + R, SUM] = ~level.multiplies_R
    spread = layer(N, COLUMNS, W=ALL, b1=constant_N[:, None], b2=masks_N3)

    take_left, through = np.zeros((COLUMNS, COLUMNS), np.int8), np.zeros(COLUMNS, np.int8)
    take_left[0, PRODUCT] = through[SUM] = 1
    up = N - half
    taps = Filter.taps((up, PRODUCT, 1), (0, SUM, 1), (up, SUM, 1))
    operate = layer(N, COLUMNS, W=take_left, b1=through, h=taps)
    moves = [x for factor in route(routed_N) for x in factor_layers(factor)]
    return [*moves, spread, operate]


@dataclass(frozen=True)
class AsCircuit:
    """A compiled circuit in the place of the circuit."""

    program: Program

    def evaluate(self, inputs_Bn):
        """Outputs (B, O), in the inputs' number type if the constants fit into it."""
        return self.program(np.asarray(inputs_Bn)[..., None])[..., 0]


def random_circuit(rng, n, width, depth):
    """Up to `width` gates a level, on earlier wires (inputs and constants among them)."""
    builder = Builder()
    wires = [*builder.inputs(n), *builder.constants(rng.integers(-3, 4, 2))]
    for _ in range(depth):
        operands_2G = rng.choice(wires[-3 * width :], (2, int(rng.integers(1, width + 1))))
        split = int(rng.integers(0, operands_2G.shape[1] + 1))
        wires += [*builder.add(*operands_2G[:, :split]), *builder.multiply(*operands_2G[:, split:])]
    return builder.build([rng.choice(wires[-2 * width :], int(rng.integers(1, width + 1)))])


WIDTHS = (4, 8, 16, 32, 64, 128, 256)
MQAR_SIZES = ((3, 1), (6, 1), (6, 2), (9, 3), (12, 3))
MQAR_COUNTED = (12, 48, 96, 192, 384)
INPUTS_A_CIRCUIT = 20


def check_compiler(rng, n_instances):
    """Programs against their circuits and against MQAR's literal algorithm; layers against H.21 and H.37."""
    n_circuits, wrong = -(-n_instances // INPUTS_A_CIRCUIT), 0
    circuits = [random_circuit(rng, *rng.integers((1, 1, 0), (7, 9, 5)).tolist()) for _ in range(n_circuits)]
    for circuit in [*circuits, comparator_circuit(5), sorting_circuit(5, 2)]:
        inputs_Bn = rng.integers(-9, 10, (INPUTS_A_CIRCUIT, circuit.n_inputs))
        outputs_BO = AsCircuit(compile_circuit(circuit)).evaluate(inputs_Bn)
        wrong += int((outputs_BO != circuit.evaluate(inputs_Bn)).any(axis=1).sum())
    ratios = []
    for width in WIDTHS:
        circuit = random_circuit(rng, width, width, 8)
        measure = circuit.measure()
        n_layers = compile_circuit(circuit).n_layers
        ratios.append(n_layers / (measure.depth * np.log2(measure.width)))
    return [
        Finding(
            statement="Theorem H.21",
            claim="circuits as BaseConv programs: outputs, and layers",
            bound="equal; O(depth log w) layers",
            measured=f"{wrong} differ; d' = 3; {min(ratios):.1f} to {max(ratios):.1f} depth log2 w layers, "
            f"gates a level {WIDTHS[0]} to {WIDTHS[-1]}",
            instances=len(circuits) * INPUTS_A_CIRCUIT,
            verdict=FAILS if wrong else HOLDS,
        ),
        _check_causal(rng, n_instances),
        _check_mqar(rng, n_instances),
    ]


def _check_causal(rng, n_instances):
    """What a causal program's row says when all rows below it are changed."""
    moved = 0
    for _ in range(n_instances):
        N, D = rng.integers(2, 9), 2
        program = Program((N, D), tuple(random_layer(rng, N, D, cyclic=False) for _ in range(4)), (N, D))
        row, u_2ND = int(rng.integers(0, N - 1)), rng.integers(-9, 10, (1, N, D)).repeat(2, axis=0)
        u_2ND[1, row + 1 :] += 1
        y_2ND = program(u_2ND)[:, : row + 1]
        moved += not np.array_equal(*y_2ND)
    return Finding(
        statement="Theorem H.21",
        claim="causal programs cannot: no row depends on a row below it; hence the cyclic form",
        bound="any circuit",
        measured=f"{moved} causal programs of 4 layers read below",
        instances=n_instances,
        verdict=FAILS if moved else ERRATUM,
    )


def _check_mqar(rng, n_instances):
    wrong, count, ratios = 0, 0, []
    for N, d in MQAR_SIZES:
        circuit, n = mqar_circuit(N, d), N // 3
        program = compile_circuit(circuit)
        kinds = [kind for kind in KINDS if kind in ("repeated", "all match") or 2**d >= 2 * n]
        for kind in kinds:
            B = -(-n_instances // (len(MQAR_SIZES) * len(kinds)))
            triples = [x_Bn.astype(np.int8) for x_Bn in random_triples(rng, B, n, d, kind)]
            wrong += int((solve(AsCircuit(program), *triples, d) != answers(*triples)).any(axis=1).sum())
            count += B
    for N in MQAR_COUNTED:
        bound = np.log2(2 * d) * np.log2(N) ** 2 * np.log2(N * d * np.log2(N))
        ratios.append(count_layers(mqar_circuit(N, d)) / bound)
    return Finding(
        statement="Theorem H.37",
        claim="a BaseConv that solves MQAR, against the literal algorithm",
        bound="(Nd, O~(1), O~(1), O~(Nd), O~(1)), O(log d log^2 N log(Nd log N)) layers",
        measured=f"{wrong} wrong; {program.notation} and {program.n_params:,} parameters at N = 12, d = 3; "
        f"layers {min(ratios):.1f} to {max(ratios):.1f} log2(2d) log2^2 N log2(Nd log2 N), N = 12 to 384",
        instances=count,
        verdict=FAILS if wrong else HOLDS,
    )
