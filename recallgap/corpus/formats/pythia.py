"""Pythia's preshuffled Pile: rows of 2049 uint16 ids, in one file or cut into shards that rows straddle.

A row is what the model saw in one forward and the target of its last position. Rows stand in the order of
training, 1024 a step, so neighbours have nothing to do with each other: a row is taken as a document. The
shards are called NAME-00000-of-00020.bin, the second number that of the last one. Source: EleutherAI/pythia,
README.md, utils/mmap_dataset.py, utils/unshard_memmap.py.
"""

import re

import numpy as np

from recallgap.corpus.formats.token_file import TokenFile, existing_file, whole_ids
from recallgap.errors import CorpusError
from recallgap.progress import note

DTYPE = np.dtype("<u2")
ROW = 2049
SHARD = re.compile(r"(?P<name>.*)-(?P<number>\d{5})-of-(?P<last>\d{5})\.bin")


def read_pythia(paths):
    """Pythia's preshuffled shards (or the file merged from them); one document a row of 2049 tokens"""
    files = [existing_file(path) for path in paths]
    is_whole = True
    if len(files) > 1 or SHARD.fullmatch(files[0].name):
        files, is_whole = _in_order(files)
    sizes = [whole_ids(path, DTYPE) for path in files]
    rest = sum(sizes) % ROW
    if rest and is_whole:
        raise CorpusError(
            f"importing {files[-1]}: the {sum(sizes):,} ids up to its end are not whole rows of {ROW}, "
            f"{rest} are over; a file is cut off, or these are no preshuffled shards"
        )
    if rest:
        note(f"{files[-1].name} ends inside a row: the last document has {rest} tokens instead of {ROW}")
    firsts = np.cumsum([0, *sizes[:-1]])
    return [
        TokenFile(
            path=path,
            dtype=DTYPE,
            starts_N=np.arange(-first % ROW, size, ROW, dtype=np.int64),
            documents_from=f"rows of {ROW} tokens",
        )
        for path, size, first in zip(files, sizes, firsts, strict=True)
    ]


def _in_order(files):
    """(the shards by number, whether all are there); they must be the first ones of one set, without gaps."""
    found = [SHARD.fullmatch(path.name) for path in files]
    for path, match in zip(files, found, strict=True):
        if match is None:
            raise CorpusError(
                f"importing {path}: it is not named as shards are, such as {_name('document', 0, 20)}"
            )
    shards = sorted(zip(files, found, strict=True), key=lambda shard: int(shard[1]["number"]))
    first = shards[0][1]
    for number, (path, match) in enumerate(shards):
        if (match["name"], match["last"]) != (first["name"], first["last"]):
            raise CorpusError(f"importing {path}: it is a shard of another set than {shards[0][0].name}")
        if int(match["number"]) != number:
            missing = _name(match["name"], number, int(match["last"]))
            raise CorpusError(
                f"importing {path}: {missing} must be named once; rows go on from shard to shard, so the "
                "first ones are needed, without gaps"
            )
    last = int(first["last"])
    full = [path for path, match in shards if int(match["number"]) < last]
    for path in full[1:]:
        if path.stat().st_size != full[0].stat().st_size:
            raise CorpusError(
                f"importing {path}: it has {path.stat().st_size:,} bytes, but {full[0].name} has "
                f"{full[0].stat().st_size:,}, and all shards but the last are of one size; get it again"
            )
    return [path for path, _ in shards], len(shards) == last + 1


def _name(name, number, last):
    return f"{name}-{number:05d}-of-{last:05d}.bin"
