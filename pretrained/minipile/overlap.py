"""How much of valid.jsonl.zst stands in the train text: 13-word shingles that occur there too, by domain.

    python pretrained/minipile/overlap.py FOLDER_OF_JSONL_ZST

A shingle is a run of 13 words, in lower case; shorter texts have none. All train domains are searched.
"""

import re
import sys
from collections import defaultdict
from pathlib import Path

from make_eval import documents

WORDS = 13


def shingles(text):
    """The runs of 13 words of a text, in order."""
    words = re.findall(r"\w+", text.lower())
    return [" ".join(words[i : i + WORDS]) for i in range(len(words) - WORDS + 1)]


def overlap(valid, train):
    """{domain: (number of shingles, of those in train)} of validation documents and the train texts."""
    by_domain = defaultdict(list)
    for document in valid:
        by_domain[document["meta"]["pile_set_name"]] += shingles(document["text"])
    wanted = set().union(*by_domain.values())
    seen = set()
    for text in train:
        seen.update(wanted.intersection(shingles(text)))
    return {
        domain: (len(found), sum(shingle in seen for shingle in found)) for domain, found in by_domain.items()
    }


def main():
    valid = documents(Path(__file__).with_name("valid.jsonl.zst"))
    paths = sorted(Path(sys.argv[1]).glob("*.train.jsonl.zst"))
    if not paths:
        sys.exit(f"{sys.argv[1]}: no .train.jsonl.zst files there")
    found = overlap(valid, (document["text"] for path in paths for document in documents(path)))
    found["all"] = tuple(map(sum, zip(*found.values(), strict=True)))
    for domain, (count, seen) in found.items():
        print(f"{domain:11s} {count:8,} shingles, {seen:6,} in train ({100 * seen / count:.2f} %)")


if __name__ == "__main__":
    main()
