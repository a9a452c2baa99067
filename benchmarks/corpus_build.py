"""Tokens/s of `corpus build` against a plain loop and `datasets.map` with the fast tokenizer of transformers.

    python benchmarks/corpus_build.py TEXT.jsonl[.gz|.zst] TOKENIZER [TOKENIZER ...]

Each row reads the same documents and ends with all ids on disk; `datasets` is given them as a table, so that
reading JSON is not in its time. Wall and CPU seconds of the process and its children.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

import datasets
import numpy as np
import transformers

from recallgap.corpus import BuildConfig, build_corpus, load_tokenizer
from recallgap.corpus.readers import ReadOptions, find_inputs, read


def documents(path):
    return [document for file in find_inputs([path], ReadOptions()) for document in read(file, ReadOptions())]


def plain_loop(path, source, out):
    """One `encode` a document, as most scripts do it."""
    tokenizer, n_tokens = load_tokenizer(source).backend, 0
    with open(out / "loop.bin", "wb") as file:
        for document in documents(path):
            ids = tokenizer.encode(document.text, add_special_tokens=False).ids
            file.write(np.array(ids, dtype=np.uint16).tobytes())
            n_tokens += len(ids)
    return n_tokens


def datasets_map(path, source, out):
    """`datasets.map(batched=True, num_proc=2)` over a table of the documents."""
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=load_tokenizer(source).backend)
    table = datasets.Dataset.from_dict({"text": [document.text for document in documents(path)]})
    options = {"return_attention_mask": False, "return_token_type_ids": False, "add_special_tokens": False}
    started = stopwatch()
    mapped = table.map(
        lambda batch: fast(batch["text"], verbose=False, **options),
        batched=True,
        num_proc=2,
        remove_columns=["text"],
        cache_file_name=str(out / "mapped.arrow"),
    )
    seconds = elapsed(started)
    return sum(map(len, mapped.with_format("numpy")["input_ids"])), seconds


def corpus_build(path, source, out):
    config = BuildConfig(tokenizer=source, separator="none")
    return build_corpus([path], out / "corpus", config=config).n_tokens


def stopwatch():
    return time.perf_counter(), sum(os.times()[:4])


def elapsed(started):
    return tuple(now - then for now, then in zip(stopwatch(), started, strict=True))


def main(path, *sources):
    datasets.disable_progress_bars()
    print(f"{'tokenizer':24} {'how':14} {'tokens':>12} {'wall s':>8} {'CPU s':>8} {'tokens/s':>10}")
    for source in sources:
        for how in (plain_loop, datasets_map, corpus_build):
            with tempfile.TemporaryDirectory() as folder:
                started = stopwatch()
                result = how(path, source, Path(folder))
                n_tokens, (wall, cpu) = result if isinstance(result, tuple) else (result, elapsed(started))
            name = f"{Path(source).name:24} {how.__name__:14}"
            print(f"{name} {n_tokens:>12,} {wall:>8.2f} {cpu:>8.2f} {n_tokens / wall:>10,.0f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
