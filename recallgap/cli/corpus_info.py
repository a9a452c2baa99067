"""recallgap corpus info CORPUS: what a corpus holds, by domain, with a decoded sample."""

import json
from pathlib import Path
from typing import Annotated

import typer


def info(
    path: Annotated[Path, typer.Argument(help="Folder of a corpus.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
):
    """Show tokens, documents, domains, vocabulary, separator, fingerprints and a sample of a corpus."""
    from recallgap.corpus import open_corpus
    from recallgap.corpus.describe import describe_corpus

    found = describe_corpus(open_corpus(path))
    if as_json:
        print(json.dumps(found, indent=2, sort_keys=True))
        return
    print(f"corpus {path}  fingerprint {found['fingerprint'][:16]}")
    print(_totals(found))
    print(f"vocabulary {found['vocab_size']:,}, stored as {found['dtype']}, in {found['n_shards']} shard(s)")
    print(f"separator {_token(found['separator'], found['separator_id'])}")
    tokenizer, text = ((found[name] or "none")[:16] for name in ("tokenizer_fingerprint", "text_fingerprint"))
    print(f"tokenizer {tokenizer}, text {text}")
    if found["n_files"]:
        print(f"from {found['n_files']} file(s): {', '.join(found['files'])}")
    _print_domains(found["domains"], found["n_tokens"])
    print(f"sample {found['sample_source']}: {found['sample']!r}")


def _totals(found):
    per_token = found["n_bytes"] / max(found["n_tokens"], 1)
    totals = f"{found['n_tokens']:,} tokens, {found['n_documents']:,} documents"
    longest = found["longest_document"]
    longest = f"longest document {longest['n_tokens']:,} tokens ({longest['source']})"
    if found["n_bytes"] == 0:
        return f"{totals}, bytes of text not known; {longest}"
    return f"{totals}, {found['n_bytes']:,} bytes, {per_token:.2f} bytes/token; {longest}"


def _token(text, token_id):
    return "none" if token_id is None else f"{text!r} (id {token_id}) ends each document"


def _print_domains(domains, n_tokens):
    width = max(len(name) for name in (*domains, "domain"))
    print(f"  {'domain':{width}} {'documents':>11} {'tokens':>15} {'share':>7} {'bytes/token':>11}")
    for name, of in sorted(domains.items(), key=lambda item: -item[1]["n_tokens"]):
        share, per_token = of["n_tokens"] / max(n_tokens, 1), of["n_bytes"] / max(of["n_tokens"], 1)
        counts = f"{of['n_documents']:>11,} {of['n_tokens']:>15,}"
        print(f"  {name:{width}} {counts} {share:>7.1%} {per_token:>11.2f}")
