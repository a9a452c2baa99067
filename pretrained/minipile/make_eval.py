"""Cut the committed evaluation split (eval.jsonl) from the mini-Pile's validation files.

    python pretrained/minipile/make_eval.py FOLDER_OF_JSONL_ZST

Only domains whose text may be passed on (NOTICE.md). From each, evenly spaced documents (part of a book, a
code file, a day's speeches), one excerpt of each, cut at a line end. The domains take turns, so the first
N lines are a balanced sample.
"""

import io
import json
import sys
from pathlib import Path

import pyarrow as pa

DOMAINS = ("books", "code", "dmmath", "formalmath", "speeches")
CODE_PACKAGES = ("networkx/", "sympy/", "transformers/")
DOCUMENTS_PER_DOMAIN = 8
MIN_CHARACTERS, MAX_CHARACTERS = 1500, 2000


def documents(path):
    """The JSON lines of a .jsonl.zst file, as dicts."""
    with pa.CompressedInputStream(pa.OSFile(str(path)), "zstd") as stream:
        for line in io.TextIOWrapper(stream, encoding="utf-8"):
            yield json.loads(line)


def excerpt(text):
    """The first MAX_CHARACTERS of a text at most, up to a line end."""
    if len(text) <= MAX_CHARACTERS:
        return text
    end = text.rfind("\n", MIN_CHARACTERS, MAX_CHARACTERS)
    return text[: end + 1 if end >= 0 else MAX_CHARACTERS]


def chosen(folder, domain):
    """Excerpts of DOCUMENTS_PER_DOMAIN evenly spaced documents of a domain."""
    suitable = []
    for document in documents(folder / f"{domain}.valid.jsonl.zst"):
        identity, text = document["meta"]["id"], document["text"]
        if len(text) >= MIN_CHARACTERS and (domain != "code" or identity.startswith(CODE_PACKAGES)):
            suitable.append({"text": excerpt(text), "meta": {"pile_set_name": domain, "id": identity}})
    if len(suitable) < DOCUMENTS_PER_DOMAIN:
        sys.exit(f"{domain}: only {len(suitable)} suitable documents, {DOCUMENTS_PER_DOMAIN} wanted")
    return [suitable[i * len(suitable) // DOCUMENTS_PER_DOMAIN] for i in range(DOCUMENTS_PER_DOMAIN)]


def main():
    folder = Path(sys.argv[1])
    by_domain = [chosen(folder, domain) for domain in DOMAINS]
    lines = [json.dumps(document) for turn in zip(*by_domain, strict=True) for document in turn]
    out = Path(__file__).with_name("eval.jsonl")
    out.write_text("\n".join(lines) + "\n")
    print(f"{out.name}: {len(lines)} documents, {out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
