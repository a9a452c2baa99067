"""What a check of a statement of the paper found: one row of `recallgap theory verify`."""

from dataclasses import dataclass

HOLDS, ERRATUM, FAILS = "holds", "holds as corrected", "fails"
VERDICTS = (HOLDS, ERRATUM, FAILS)
"""As printed; only with a correction that docs/theory.md names; not even so."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A statement, what it promises, what was measured."""

    statement: str
    """Its name in the paper: "Proposition H.33"."""
    claim: str
    """What was checked, in a few words: "pbs-key-values as a circuit, depth"."""
    bound: str
    """What the paper promises: "O(log n (log m + log n log d))"."""
    measured: str
    """What was found, with its figures: "0.81 to 1.22 times the bound, n = 4 to 1024"."""
    instances: int
    """Random instances compared with the literal algorithm; 0 where a size was measured."""
    verdict: str

    def __post_init__(self):
        assert self.verdict in VERDICTS
