"""The packages that the mini-Pile is made from: packages.tsv, one row a package and domain."""

import csv
from dataclasses import dataclass
from pathlib import Path

TABLE = Path(__file__).with_name("packages.tsv")


@dataclass(frozen=True)
class Package:
    registry: str
    """Where it comes from: debian, pypi, or generator (from pypi, but run instead of unpacked)."""
    name: str
    version: str
    """The version that the text of manifest.json was made from."""
    domain: str
    licence: str
    """The terms of the text taken from it, which may differ from those of the package."""
    files: str
    """Patterns, parted by spaces, of the files that are needed."""


def packages():
    """All rows of packages.tsv."""
    with open(TABLE, encoding="utf-8", newline="") as stream:
        return [Package(**row) for row in csv.DictReader(stream, delimiter="\t")]
