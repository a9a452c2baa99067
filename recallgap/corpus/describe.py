"""What a corpus holds, as one dict, for `recallgap corpus info`."""

import json

import pyarrow.parquet as pq

from recallgap.corpus.store import token_dtype

SAMPLE_TOKENS, SAMPLE_CHARACTERS = 200, 200
MAX_FILES = 8


def describe_corpus(corpus):
    """JSON values: totals, domains, vocabulary, separator, fingerprints, input files, a decoded sample."""
    config, files = corpus.config, _input_names(corpus)
    dtype = corpus.results.get("dtype", token_dtype(corpus.vocab_size).name)
    return {
        **corpus.artifact.results,
        "fingerprint": corpus.fingerprint,
        "tokenizer_fingerprint": corpus.tokenizer_fingerprint,
        "text_fingerprint": corpus.artifact.inputs["text"],
        "vocab_size": corpus.vocab_size,
        "dtype": dtype,
        "separator_id": corpus.separator_id,
        "separator": config.get("separator"),
        "n_files": len(files),
        "files": files[:MAX_FILES] + ["..."] * (len(files) > MAX_FILES),
        **_sample(corpus),
    }


def _input_names(corpus):
    path = corpus.path / "inputs.json"
    return (
        [record["name"] for record in json.loads(path.read_text(encoding="utf-8"))] if path.is_file() else []
    )


def _sample(corpus):
    """The start of the first document: decoded, or its ids where the corpus has no tokenizer."""
    if corpus.n_documents == 0:
        return {"sample_source": None, "sample": ""}
    first = pq.read_table(corpus.artifact.files("documents-")[0]).slice(0, 1).to_pylist()[0]
    ids = corpus.ids(0, min(first["n_tokens"], SAMPLE_TOKENS))
    has_tokenizer = (corpus.path / "tokenizer.json").is_file()
    text = corpus.tokenizer().decode(ids) if has_tokenizer else " ".join(map(str, ids))
    return {"sample_source": first["source"], "sample": text[:SAMPLE_CHARACTERS]}
