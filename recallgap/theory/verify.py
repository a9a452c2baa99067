"""All constructions on fresh random inputs: which statement holds, and how its bound compares.

Every check draws its inputs from a generator of its own, made from the seed and its name, so that one check
alone repeats what it did among the others.
"""

import time
import zlib

import numpy as np

from recallgap.errors import ConfigError
from recallgap.progress import note
from recallgap.registry import pick
from recallgap.theory.attention import check_attention
from recallgap.theory.autocorrelation import check_autocorrelation
from recallgap.theory.base_conv import check_base_conv
from recallgap.theory.butterfly import check_butterfly
from recallgap.theory.comparators import check_comparators
from recallgap.theory.compiler import check_compiler
from recallgap.theory.data_dependent import check_data_dependent
from recallgap.theory.equivalence import check_hyena
from recallgap.theory.mqar_circuit import check_mqar_circuit
from recallgap.theory.parallel_mqar import check_parallel_mqar
from recallgap.theory.pbs import check_pbs
from recallgap.theory.primitives import check_primitives
from recallgap.theory.recurrences import check_recurrences
from recallgap.theory.sorting import check_sorting
from recallgap.theory.space import check_space

CHECKS = {
    "base_conv": check_base_conv,
    "primitives": check_primitives,
    "hyena": check_hyena,
    "recurrences": check_recurrences,
    "butterfly": check_butterfly,
    "compiler": check_compiler,
    "attention": check_attention,
    "comparators": check_comparators,
    "sorting": check_sorting,
    "pbs": check_pbs,
    "parallel_mqar": check_parallel_mqar,
    "mqar_circuit": check_mqar_circuit,
    "autocorrelation": check_autocorrelation,
    "data_dependent": check_data_dependent,
    "space": check_space,
}
"""Name -> function of (rng, n_instances) that returns findings, in the order of the appendix."""


def verify(names=(), *, n_instances=1000, seed=0):
    """The findings of the checks called `names` (none: of all), each on `n_instances` random instances."""
    if n_instances < 1:
        raise ConfigError(f"verifying the theory: {n_instances} instances; ask for at least 1")
    if seed < 0:
        raise ConfigError(f"verifying the theory: the seed is {seed}, but a seed is not negative")
    checks = {name: pick("check", CHECKS, name) for name in names} or CHECKS
    findings = []
    for name, check in checks.items():
        started = time.perf_counter()
        rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
        findings += check(rng, n_instances)
        note(f"theory: {name} checked in {time.perf_counter() - started:.1f} s")
    return findings
