"""From a source's texts to documents without copies, and from those to train and validation splits."""

import re
import zlib
from collections import defaultdict
from typing import NamedTuple

from cleaning import MIN_CHARACTERS, number, pieces, tidy

MAX_HELD_OUT_GROUP = 150_000
"""Bytes: a group larger than this, and than what is wanted, stays in train."""
MAX_SEEN_IN_TRAIN = 0.25
"""Part of a validation document's 13-word shingles that may stand in train."""


class Document(NamedTuple):
    group: str
    """What must not be parted by the split: a book, a file, a run of entries."""
    piece: int
    text: str

    @property
    def n_bytes(self):
        return len(self.text.encode())


def words(text):
    return re.findall(r"\w+", text.lower())


def shingles(text, length, step=1):
    """The runs of `length` words that begin at every step-th word; a shorter text is one run."""
    found = words(text)
    return [" ".join(found[i : i + length]) for i in range(0, max(1, len(found) - length + 1), step)]


def documents(source, max_copied=None):
    """Documents of (group, text) pairs: tidied, cut, long enough, none with the words of an earlier one.

    With max_copied, none that repeats more than this part of its 8-word shingles from earlier ones.
    """
    seen_texts, seen_shingles = set(), set()
    for group, text in source:
        for piece, part in enumerate(pieces(tidy(text))):
            if len(part) < MIN_CHARACTERS:
                continue
            key = number(re.sub(r"\W+", " ", part.lower()))
            if key in seen_texts:
                continue
            seen_texts.add(key)
            if max_copied is not None:
                # 64 bits instead of the words; which bits differs between processes, what is equal does not.
                found = [hash(shingle) for shingle in shingles(part, 8, step=3)]
                if sum(shingle in seen_shingles for shingle in found) > max_copied * len(found):
                    continue
                seen_shingles.update(found)
            yield Document(group, piece, part)


def sample(found, max_bytes):
    """All documents if within max_bytes, else about that much of them in whole groups, by their hashes."""
    total = sum(document.n_bytes for document in found)
    if total <= max_bytes:
        return found
    kept = max_bytes / total * 10_000
    return [document for document in found if number("cap" + document.group) % 10_000 < kept]


def held_out_groups(found, least):
    """The groups of the validation split, taken by their hashes until it has 2 % of the bytes or, if that is
    more, the smaller of `least` bytes and 12 %."""
    size = defaultdict(int)
    for document in found:
        size[document.group] += document.n_bytes
    total = sum(size.values())
    wanted = max(0.02 * total, min(least, 0.12 * total))
    groups, reached = set(), 0
    for group in sorted(size, key=lambda name: number("split" + name)):
        if reached >= wanted:
            break
        if size[group] <= max(wanted, MAX_HELD_OUT_GROUP):
            groups.add(group)
            reached += size[group]
    return groups


def sampled_shingles(text):
    """The checksums of a quarter of a text's 13-word shingles, the same quarter everywhere."""
    checksums = (zlib.crc32(shingle.encode()) for shingle in shingles(text, 13))
    return [checksum for checksum in checksums if checksum % 4 == 0]


def without_leaks(train, valid):
    """The validation documents that do not repeat training text: at most MAX_SEEN_IN_TRAIN of their shingles.

    Texts of one group with one piece number (the sections of a file: each is piece 0) are dropped together.
    """
    seen = set()
    for document in train:
        seen.update(sampled_shingles(document.text))
    leaks = set()
    for document in valid:
        found = sampled_shingles(document.text)
        if sum(shingle in seen for shingle in found) > MAX_SEEN_IN_TRAIN * len(found):
            leaks.add(document[:2])
    return [document for document in valid if document[:2] not in leaks]


def split(found, check_leaks):
    """(train, valid) of a list of documents. Domains with near-copies (check_leaks) hold out more, then drop
    the validation documents that repeat training text."""
    groups = held_out_groups(found, 600_000 if check_leaks else 400_000)
    train = [document for document in found if document.group not in groups]
    valid = [document for document in found if document.group in groups]
    return train, without_leaks(train, valid) if check_leaks else valid
