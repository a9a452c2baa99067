"""Cut the two committed evaluation splits from the mini-Pile's validation files.

    python pretrained/minipile/make_eval.py FOLDER_OF_JSONL_ZST

Both hold only domains whose text may be passed on (NOTICE.md): whole documents, or excerpts of long ones that
end at a line end where there is one. The same text gives the same lines.

- eval.jsonl, for the demo on a third party's checkpoint: 8 short excerpts a domain; the domains take turns.
- valid.jsonl.zst, for our checkpoints: about 1 MB; any prefix of it has each domain's share of the whole.
"""

import hashlib
import io
import json
import sys
from pathlib import Path

import pyarrow as pa

DOMAINS = ("books", "code", "dmmath", "formalmath", "speeches")
CODE_PACKAGES = ("networkx/", "sympy/", "transformers/")  # NOTICE.md has their terms
MIN_CHARACTERS = 1500

EVAL_DOCUMENTS_PER_DOMAIN = 8
EVAL_MAX_CHARACTERS = 2000

VALID_CHARACTERS_PER_DOMAIN = 213_000
VALID_MAX_CHARACTERS = 8000


def documents(path):
    """The JSON lines of a .jsonl.zst file, as dicts."""
    with pa.CompressedInputStream(pa.OSFile(str(path)), "zstd") as stream:
        for line in io.TextIOWrapper(stream, encoding="utf-8"):
            yield json.loads(line)


def excerpt(text, max_characters):
    """The first max_characters of a text at most, up to a line end if there is one after MIN_CHARACTERS."""
    if len(text) <= max_characters:
        return text
    end = text.rfind("\n", MIN_CHARACTERS, max_characters)
    return text[: end + 1 if end >= 0 else max_characters]


def excerpts(identity, text, max_characters):
    """A document's successive excerpts as (id, text); the ids of later ones end in +CHARACTERS_BEFORE."""
    start = 0
    while len(text) - start >= MIN_CHARACTERS:
        part = excerpt(text[start:], max_characters)
        yield (f"{identity}+{start}" if start else identity), part
        start += len(part)


def suitable(folder, domain):
    """A domain's validation documents as (id, text): long enough, and of code only what NOTICE.md names."""
    for document in documents(folder / f"{domain}.valid.jsonl.zst"):
        identity, text = document["meta"]["id"], document["text"]
        if len(text) >= MIN_CHARACTERS and (domain != "code" or identity.startswith(CODE_PACKAGES)):
            yield identity, text


def evenly_spaced(folder, domain):
    """The beginnings of EVAL_DOCUMENTS_PER_DOMAIN evenly spaced documents of a domain."""
    found = list(suitable(folder, domain))
    wanted = EVAL_DOCUMENTS_PER_DOMAIN
    if len(found) < wanted:
        sys.exit(f"{domain}: only {len(found)} suitable documents, {wanted} wanted")
    picked = [found[i * len(found) // wanted] for i in range(wanted)]
    return [(identity, excerpt(text, EVAL_MAX_CHARACTERS)) for identity, text in picked]


def within_budget(found, budget, max_characters=VALID_MAX_CHARACTERS):
    """Excerpts of documents (id, text) of at least `budget` characters in all, or everything.

    First the first excerpt of every document, then every second one, and so on, so that many documents are
    in; in the order of the ids' sha1, so that no package or book is preferred.
    """
    by_document = [
        list(excerpts(identity, text, max_characters))
        for identity, text in sorted(found, key=lambda pair: hashlib.sha1(pair[0].encode()).digest())
    ]
    picked, size = [], 0
    for turn in range(max(map(len, by_document))):
        for parts in by_document:
            if turn < len(parts) and size < budget:
                picked.append(parts[turn])
                size += len(parts[turn][1])
    return picked


def interleaved(by_domain):
    """(domain, id, text) of {domain: [(id, text)]}; next comes the domain of which the least part came."""
    total = {domain: sum(len(text) for _, text in pairs) for domain, pairs in by_domain.items()}
    position = dict.fromkeys(by_domain, 0)
    come = dict.fromkeys(by_domain, 0)
    for _ in range(sum(map(len, by_domain.values()))):
        domain = min(by_domain, key=lambda name: come[name] / total[name])
        identity, text = by_domain[domain][position[domain]]
        position[domain] += 1
        come[domain] += len(text)
        yield domain, identity, text


def lines(rows):
    """The JSON lines of (domain, id, text), in the Pile's form."""
    for domain, identity, text in rows:
        yield json.dumps({"text": text, "meta": {"pile_set_name": domain, "id": identity}}) + "\n"


def write(name, rows):
    """Write rows beside this script, compressed if the name ends in .zst."""
    rows = list(rows)
    data = "".join(lines(rows)).encode()
    path = Path(__file__).with_name(name)
    path.write_bytes(pa.Codec("zstd", 19).compress(data, asbytes=True) if name.endswith(".zst") else data)
    size = sum(len(text.encode()) for _, _, text in rows)
    print(f"{name}: {len(rows)} documents, {size:,} bytes of text, {path.stat().st_size:,} bytes")


def main():
    folder = Path(sys.argv[1])
    few = {domain: evenly_spaced(folder, domain) for domain in DOMAINS}
    write("eval.jsonl", ((d, *few[d][i]) for i in range(EVAL_DOCUMENTS_PER_DOMAIN) for d in DOMAINS))
    many = {d: within_budget(list(suitable(folder, d)), VALID_CHARACTERS_PER_DOMAIN) for d in DOMAINS}
    write("valid.jsonl.zst", interleaved(many))


if __name__ == "__main__":
    main()
