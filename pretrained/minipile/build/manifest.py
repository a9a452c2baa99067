"""Write manifest.json, or check a folder against it: what the mini-Pile's text is, and from which packages.

    python pretrained/minipile/build/manifest.py FOLDER [--check]

FOLDER holds <domain>.<train|valid>.jsonl.zst; the evaluation split beside manifest.json is looked at too. The
versions and licences are those of packages.tsv: after a build from other versions, correct that table before
writing. --check names what differs or is not there, and exits with 1 if anything does.
"""

import hashlib
import io
import json
import sys
from pathlib import Path

import pyarrow as pa
from packages import packages

MANIFEST = Path(__file__).parents[1] / "manifest.json"
EVALUATION = "valid.jsonl.zst"
SPLITS = ("train", "valid")


def measured(path):
    """Documents, bytes of their texts in UTF-8, and the sha256 of the uncompressed file."""
    count = n_bytes = 0
    digest = hashlib.sha256()
    with pa.CompressedInputStream(pa.OSFile(str(path)), "zstd") as stream:
        for line in io.BufferedReader(stream):
            digest.update(line)
            n_bytes += len(json.loads(line)["text"].encode())
            count += 1
    return {"documents": count, "text_bytes": n_bytes, "sha256": digest.hexdigest()}


def manifest(folder, sources, evaluation):
    """What the folder's files hold, by domain, with the packages (of `sources`) that each domain is from; and
    what the file `evaluation` holds."""
    domains = {}
    for name in sorted({source.domain for source in sources}):
        paths = {split: folder / f"{name}.{split}.jsonl.zst" for split in SPLITS}
        domains[name] = {
            "packages": [
                {key: getattr(source, key) for key in ("name", "version", "registry", "licence")}
                for source in sources
                if source.domain == name
            ],
            **{split: measured(path) for split, path in paths.items() if path.exists()},
        }
    return {
        "sha256_of": "the uncompressed JSON lines",
        "domains": domains,
        EVALUATION: measured(evaluation),
        **{split: totals(domains, split) for split in SPLITS},
    }


def totals(domains, split):
    """Documents and bytes of a split, all domains together."""
    parts = [domain[split] for domain in domains.values() if split in domain]
    return {key: sum(part[key] for part in parts) for key in ("documents", "text_bytes")}


def differences(expected, found):
    """One line for each text in which two manifests differ."""
    if found[EVALUATION] != expected[EVALUATION]:
        yield f"{EVALUATION}: another text; its counts and the losses on it do not belong to it"
    for name, domain in expected["domains"].items():
        there = found["domains"].get(name, {})
        for split in SPLITS:
            wanted, got = domain[split], there.get(split)
            if got is None:
                yield f"{name}.{split}: not there"
            elif got != wanted:
                sizes = (
                    f"{part['documents']:,} documents, {part['text_bytes']:,} bytes" for part in (got, wanted)
                )
                yield f"{name}.{split}: {', not '.join(sizes)}; sha256 {got['sha256'][:12]}..."


def main():
    check = "--check" in sys.argv
    (folder,) = (argument for argument in sys.argv[1:] if argument != "--check")
    found = manifest(Path(folder), packages(), MANIFEST.with_name(EVALUATION))
    if not check:
        missing = [name for name, domain in found["domains"].items() if not set(SPLITS) <= set(domain)]
        if missing:
            sys.exit(f"{folder}: no train or no valid text of {', '.join(missing)}; nothing was written")
        MANIFEST.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
        n_bytes = found["train"]["text_bytes"]
        print(f"{MANIFEST.name}: {len(found['domains'])} domains, {n_bytes:,} bytes of train text")
        return
    different = list(differences(json.loads(MANIFEST.read_text()), found))
    print("\n".join(different) or f"all {len(found['domains'])} domains are the ones of {MANIFEST.name}")
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
