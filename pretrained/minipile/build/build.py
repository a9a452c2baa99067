"""Build the mini-Pile's text from what fetch.py unpacked.

    python pretrained/minipile/build/build.py WORK OUT [DOMAIN...]

Writes OUT/<domain>.train.jsonl.zst and OUT/<domain>.valid.jsonl.zst, one JSON object a line, in the Pile's
form (text, meta.pile_set_name). All domains if none is named; dmmath only if dm_math.py has written
WORK/dmmath.jsonl.
"""

import json
import sys
from pathlib import Path

import pyarrow as pa
from cleaning import number
from sources import DOMAINS, Domain
from splitting import documents, sample, split


def generated(path):
    """(group, text) of the texts that dm_math.py wrote; a hash tells texts of one module apart."""
    with open(path, encoding="utf-8") as stream:
        for line in stream:
            document = json.loads(line)
            yield f"{document['meta']['id']}:{number(document['text']) % 997}", document["text"]


def line(document, name, domain):
    """One JSON line, as UTF-8."""
    meta = {
        "pile_set_name": domain.label,
        "domain": name,
        "id": f"{document.group}#{document.piece}",
        "licence": domain.licence,
    }
    return (json.dumps({"text": document.text, "meta": meta}, ensure_ascii=False) + "\n").encode()


def build(name, domain, unpacked, out):
    """Write both splits of a domain and say how much they hold."""
    found = sample(list(documents(domain.read(unpacked), domain.max_copied)), domain.max_bytes)
    sizes = []
    for kind, part in zip(("train", "valid"), split(found, domain.max_copied is not None), strict=True):
        data = b"".join(line(document, name, domain) for document in part)
        compressed = pa.Codec("zstd", 10).compress(data, asbytes=True)
        (out / f"{name}.{kind}.jsonl.zst").write_bytes(compressed)
        sizes.append(f"{kind} {len(part):,} documents, {sum(d.n_bytes for d in part):,} bytes")
    print(f"{name}: {'; '.join(sizes)}", flush=True)


def main():
    work, out, names = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
    domains = dict(DOMAINS)
    mathematics = work / "dmmath.jsonl"
    if mathematics.exists():
        domains["dmmath"] = Domain("DM Mathematics", "Apache-2 generator", lambda _: generated(mathematics))
    unknown = sorted(set(names) - set(domains))
    if unknown:
        sys.exit(f"no domain {', '.join(unknown)}; there is {', '.join(domains)} (dmmath after dm_math.py)")
    out.mkdir(parents=True, exist_ok=True)
    for name in names or domains:
        build(name, domains[name], work / "unpacked", out)


if __name__ == "__main__":
    main()
