"""build_corpus: the right stream, the same bytes however it was interrupted, everything skipped counted."""

import hashlib
import itertools
import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from oracles import oracle_megatron_documents

from recallgap import staging
from recallgap.artifact import staging_path
from recallgap.corpus import BuildConfig, build, build_corpus, load_tokenizer
from recallgap.errors import ArtifactError, ConfigError, CorpusError

SHARD_TOKENS = 120


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """Two JSONL files and a folder of texts: 64 documents with text, 9 empty ones (the last among them)."""
    folder = tmp_path_factory.mktemp("inputs")
    random = np.random.default_rng(0)
    words = ["the", "quick", "brown", "fox", "na\u00efve", "<|endoftext|>", "\U0001f600"]
    for name, n_rows in (("a.jsonl", 40), ("b.jsonl", 25)):
        texts = [" ".join(random.choice(words[:5], random.integers(1, 30))) for _ in range(n_rows)]
        for n in (0, 7, 8, n_rows - 1):
            texts[n] = ""
        rows = [{"text": t, "meta": {"pile_set_name": f"set {n % 3}"}} for n, t in enumerate(texts)]
        (folder / name).write_bytes(
            "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows)
            .encode()
            .replace(b"quick", b"qu\xffick", 1)
        )
    (folder / "texts").mkdir()
    for n in range(8):
        text = "" if n == 7 else " ".join(words[n:] + words[:n])
        (folder / "texts" / f"{n}.txt").write_text(text, encoding="utf-8")
    return [folder / "a.jsonl", folder / "b.jsonl", folder / "texts"]


@pytest.fixture(scope="module")
def config(tokenizer_file):
    return BuildConfig(tokenizer=str(tokenizer_file), shard_tokens=SHARD_TOKENS)


@pytest.fixture(scope="module")
def corpus(inputs, config, tmp_path_factory):
    return build_corpus(inputs, tmp_path_factory.mktemp("built") / "corpus", config=config)


def content(path):
    """What must not depend on how the corpus came to be: every file but run.json."""
    return {
        p.name: hashlib.sha256(p.read_bytes()).hexdigest()
        for p in Path(path).iterdir()
        if p.name != "run.json"
    }


def expected_documents(inputs):
    """(text, domain, source) of the documents with text, read in the plainest way."""
    for path in inputs[:2]:
        for number, line in enumerate(path.read_bytes().decode(errors="replace").splitlines(), 1):
            row = json.loads(line)
            if row["text"]:
                yield row["text"], row["meta"]["pile_set_name"], f"{path.name}:{number}"
    for n in range(7):
        yield (inputs[2] / f"{n}.txt").read_text(encoding="utf-8"), "", f"{n}.txt:1"


def test_the_stream_is_every_document_and_its_separator(corpus, inputs, config):
    backend = load_tokenizer(config.tokenizer).backend
    expected = list(expected_documents(inputs))
    ids = [[*backend.encode(text, add_special_tokens=False).ids, 0] for text, _, _ in expected]
    assert corpus.ids(0, corpus.n_tokens).tolist() == list(itertools.chain(*ids))
    assert corpus.document_bounds_N1.tolist() == np.cumsum([0, *map(len, ids)]).tolist()
    rows = corpus.documents.to_pylist()
    assert [(r["domain"], r["source"]) for r in rows] == [(d, s) for _, d, s in expected]
    assert [r["n_bytes"] for r in rows] == [len(text.encode()) for text, _, _ in expected]
    results = corpus.artifact.results
    assert (results["n_documents"], results["n_empty"], results["n_files"]) == (64, 9, 10)
    assert results["n_replaced"] == 2, "one invalid byte in each JSONL file"
    assert results["n_separators_in_text"] == 7
    assert results["n_shards"] > 4
    longest = max(range(64), key=lambda n: len(ids[n]))
    assert results["longest_document"] == {"n_tokens": len(ids[longest]), "source": expected[longest][2]}
    assert sum(d["n_tokens"] for d in results["domains"].values()) == corpus.n_tokens


def test_shards_are_closed_by_the_document_that_fills_them(corpus):
    rows = corpus.documents.to_pylist()
    for number in range(corpus.artifact.results["n_shards"] - 1):
        lengths = [row["n_tokens"] for row in rows if row["shard"] == number]
        assert sum(lengths[:-1]) < SHARD_TOKENS <= sum(lengths)


def test_megatron_reads_the_shards(corpus):
    documents = []
    for path in corpus.artifact.files("tokens-"):
        if path.suffix == ".bin":
            documents += oracle_megatron_documents(path.with_suffix(""))
    bounds = corpus.document_bounds_N1.tolist()
    assert documents == [corpus.ids(start, stop).tolist() for start, stop in itertools.pairwise(bounds)]


def test_the_corpus_carries_its_tokenizer(corpus, config):
    source, stored = load_tokenizer(config.tokenizer), corpus.tokenizer()
    assert stored.fingerprint == source.fingerprint == corpus.tokenizer_fingerprint
    assert load_tokenizer(corpus.path).fingerprint == source.fingerprint
    assert (stored.bos_id, stored.eos_id, stored.vocab_size) == (None, 0, corpus.vocab_size)
    start, stop = corpus.document_bounds_N1[1:3]
    assert stored.decode(corpus.ids(int(start), int(stop))).endswith("<|endoftext|>")


@pytest.mark.parametrize(("characters", "ahead"), [(1, 1), (100, 2), (1 << 22, 7)])
def test_batches_and_threads_do_not_show(characters, ahead, corpus, inputs, config, tmp_path, monkeypatch):
    monkeypatch.setattr(build, "BATCH_CHARACTERS", characters)
    monkeypatch.setattr(build, "BATCHES_AHEAD", ahead)
    again = build_corpus(inputs, tmp_path / "again", config=config)
    assert content(again.path) == content(corpus.path)
    assert again.fingerprint == corpus.fingerprint


class Killed(BaseException):
    """Stands for a kill: no handler of the library may catch it."""


def test_an_interruption_at_any_file_ends_in_the_same_bytes(inputs, tokenizer_file, tmp_path, monkeypatch):
    """A run may die before the rename of any file it finished, and right after the last one."""
    rename, calls = staging.os.rename, []

    def dying(source, target):
        calls.append(target)
        if len(calls) == die_at:
            raise Killed
        rename(source, target)
        if len(calls) == n_renames == die_at - 1:
            raise Killed

    monkeypatch.setattr(staging.os, "rename", dying)
    monkeypatch.setattr(build, "BATCH_CHARACTERS", 300)
    config = BuildConfig(tokenizer=str(tokenizer_file), shard_tokens=600)
    die_at = n_renames = None
    whole = build_corpus(inputs[:2], tmp_path / "whole", config=config)
    n_renames = len(calls)
    assert n_renames > 12
    for die_at in range(1, n_renames + 2):
        calls.clear()
        out = tmp_path / f"{die_at}"
        with pytest.raises(Killed):
            build_corpus(inputs[:2], out, config=config)
        assert out.exists() == (die_at > n_renames)
        calls.extend([None] * (n_renames + 1))
        again = build_corpus(inputs[:2], out, config=config)
        assert content(again.path) == content(whole.path)


KILLED_BUILD = """
import os, signal, sys
from recallgap.corpus import BuildConfig, build, build_corpus
build.BATCH_CHARACTERS = 300
write, written = build.write_shard, []
def write_shard(*args):
    write(*args)
    written.append(args)
    if len(written) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
build.write_shard = write_shard
tokenizer, shard_tokens, out, *inputs = sys.argv[1:]
build_corpus(inputs, out, config=BuildConfig(tokenizer=tokenizer, shard_tokens=int(shard_tokens)))
"""


def test_kill_9_and_the_same_command(corpus, inputs, config, tmp_path, monkeypatch):
    out = tmp_path / "killed"
    command = [sys.executable, "-c", KILLED_BUILD, config.tokenizer, str(SHARD_TOKENS), str(out)]
    died = subprocess.run([*command, *map(str, inputs)], check=False)
    assert died.returncode == -signal.SIGKILL
    assert not out.exists()
    kept = {p.name for p in staging_path(out).iterdir()}
    assert "tokens-00002.idx" in kept
    assert "tokens-00003.idx" not in kept
    tokenized = []
    encode_batch = build.load_tokenizer(config.tokenizer).__class__.encode_batch
    monkeypatch.setattr(
        "recallgap.corpus.tokenizer.Tokenizer.encode_batch",
        lambda self, texts: tokenized.extend(texts) or encode_batch(self, texts),
    )
    again = build_corpus(inputs, out, config=config)
    assert content(again.path) == content(corpus.path)
    assert 0 < len([t for t in tokenized if t]) < 64, "what was done was not done again"


def test_a_resumed_build_opens_no_finished_file(inputs, config, tmp_path, monkeypatch):
    written = []

    def write_shard(*args, write=build.write_shard):
        write(*args)
        written.append(args[-1])
        if written[-1]["file"] == 1:
            raise Killed

    monkeypatch.setattr(build, "write_shard", write_shard)
    monkeypatch.setattr(build, "BATCH_CHARACTERS", 300)
    with pytest.raises(Killed):
        build_corpus(inputs, tmp_path / "out", config=config)
    monkeypatch.undo()
    opened = []
    from recallgap.corpus import reading

    read = reading.read
    monkeypatch.setattr(
        reading, "read", lambda file, options: opened.append(file.name) or read(file, options)
    )
    build_corpus(inputs, tmp_path / "out", config=config)
    assert opened == ["b.jsonl", *(f"{n}.txt" for n in range(8))]


def test_the_same_command_builds_nothing_again_and_another_is_refused(
    corpus, inputs, config, tmp_path, monkeypatch
):
    out = tmp_path / "out"
    first = build_corpus(inputs[:1], out, config=config)
    monkeypatch.setattr(build, "stage", None)
    assert build_corpus(inputs[:1], out, config=config).fingerprint == first.fingerprint
    monkeypatch.undo()
    with pytest.raises(ArtifactError, match=r"inputs\.text is .* there, .* now"):
        build_corpus(inputs, out, config=config)
    replaced = build_corpus(inputs, out, config=config, overwrite=True)
    assert content(replaced.path) == content(corpus.path)


@pytest.mark.parametrize(
    "change",
    [
        {"strict": True},
        {"text_field": "meta.pile_set_name"},
        {"domain_field": "text"},
        {"format": "text"},
        {"separator": "q"},
        {"max_documents": 3},
        {"shard_tokens": 99},
    ],
)
def test_every_setting_that_changes_the_corpus_is_in_its_plan(change, inputs, tokenizer_file, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "a", "meta": {"pile_set_name": "x"}}\n')
    build_corpus([tmp_path / "a.jsonl"], tmp_path / "out", config=BuildConfig(tokenizer=str(tokenizer_file)))
    with pytest.raises(ArtifactError, match="was made with other settings"):
        changed = BuildConfig(tokenizer=str(tokenizer_file), **change)
        build_corpus([tmp_path / "a.jsonl"], tmp_path / "out", config=changed)


def test_the_order_and_names_of_inputs_count_but_not_their_place(inputs, config, tmp_path):
    one = build_corpus(inputs[:2], tmp_path / "one", config=config)
    turned = build_corpus(inputs[1::-1], tmp_path / "turned", config=config)
    assert one.artifact.inputs["text"] != turned.artifact.inputs["text"]
    (tmp_path / "moved").mkdir()
    moved = [tmp_path / "moved" / path.name for path in inputs[:2]]
    for path, target in zip(inputs[:2], moved, strict=True):
        target.write_bytes(path.read_bytes())
    assert build_corpus(moved, tmp_path / "two", config=config).fingerprint == one.fingerprint


@pytest.mark.parametrize(("separator", "separator_id"), [("none", None), ("auto", 0), ("q", 81)])
def test_separators(separator, separator_id, inputs, tokenizer_file, tmp_path):
    config = BuildConfig(tokenizer=str(tokenizer_file), separator=separator)
    built = build_corpus(inputs[:1], tmp_path / "out", config=config)
    last = built.ids(0, built.n_tokens)[built.document_bounds_N1[1:] - 1]
    assert built.separator_id == separator_id
    assert (separator_id is None) == (set(last.tolist()) != {separator_id})
    assert built.artifact.config["separator"] == (
        None if separator == "none" else built.tokenizer().decode(last[:1])
    )


def test_separators_that_cannot_be(inputs, tokenizer_file, tmp_path):
    with pytest.raises(ConfigError, match=r"no token '<\|end\|>'.*special tokens: <\|endoftext\|>"):
        build_corpus(
            inputs, tmp_path / "out", config=BuildConfig(tokenizer=str(tokenizer_file), separator="<|end|>")
        )
    state = json.loads(tokenizer_file.read_text())
    state["added_tokens"] = []
    (tmp_path / "bare.json").write_text(json.dumps(state))
    with pytest.raises(ConfigError, match=r"names no end-of-text token.*--separator none"):
        build_corpus(inputs, tmp_path / "out", config=BuildConfig(tokenizer=str(tmp_path / "bare.json")))
    assert not (tmp_path / "out").exists()


def test_the_first_documents_only(corpus, inputs, tokenizer_file, tmp_path):
    config = BuildConfig(tokenizer=str(tokenizer_file), max_documents=36)
    first = build_corpus(inputs, tmp_path / "first", config=config)
    assert (first.n_documents, first.artifact.results["n_empty"]) == (36, 3)
    assert first.ids(0, first.n_tokens).tolist() == corpus.ids(0, first.n_tokens).tolist()
    (inputs[0].parent / "bad.jsonl").write_text('{"text": "a"}\nno json\n')
    config = BuildConfig(tokenizer=str(tokenizer_file), max_documents=1)
    assert build_corpus([inputs[0].parent / "bad.jsonl"], tmp_path / "one", config=config).n_documents == 1


@pytest.mark.parametrize("content_of_file", [b"", b"\n\n", b'{"text": ""}\n'])
def test_a_corpus_without_text_is_refused(content_of_file, config, tmp_path):
    (tmp_path / "a.jsonl").write_bytes(content_of_file)
    with pytest.raises(CorpusError, match="hold no document with text"):
        build_corpus([tmp_path / "a.jsonl"], tmp_path / "out", config=config)
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "now there is some"}\n')
    assert build_corpus([tmp_path / "a.jsonl"], tmp_path / "out", config=config).n_documents == 1


def test_strict_refuses_and_says_where(inputs, tokenizer_file, tmp_path):
    config = BuildConfig(tokenizer=str(tokenizer_file), strict=True)
    with pytest.raises(CorpusError, match=r"a\.jsonl:\d+: byte \d+ "):
        build_corpus(inputs, tmp_path / "out", config=config)


def test_a_vocabulary_above_65536_is_stored_in_int32(tokenizer_file, tmp_path):
    state = json.loads(tokenizer_file.read_text())
    for number, name in ((65535, "<a>"), (65536, "<b>")):
        state["added_tokens"].append({**state["added_tokens"][0], "id": number, "content": name})
        state["model"]["vocab"][name] = number
    (tmp_path / "big.json").write_text(json.dumps(state))
    (tmp_path / "a.txt").write_text("x<a><b>y")
    built = build_corpus(
        [tmp_path / "a.txt"], tmp_path / "out", config=BuildConfig(tokenizer=str(tmp_path / "big.json"))
    )
    assert built.vocab_size == 65537
    assert built.ids(1, 3).tolist() == [65535, 65536]
    assert built.ids(0, 1).dtype == np.int32
    assert oracle_megatron_documents(built.path / "tokens-00000") == [built.ids(0, built.n_tokens).tolist()]


def test_a_document_of_ten_megabytes(tmp_path):
    line, n = "x" * 4095, 2600
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({line: 5}, unk_token="x"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.CharDelimiterSplit("\n")
    tokenizer.save(str(tmp_path / "lines.json"))
    (tmp_path / "a.txt").write_text((line + "\n") * n)
    config = BuildConfig(tokenizer=str(tmp_path / "lines.json"), separator="none")
    built = build_corpus([tmp_path / "a.txt"], tmp_path / "out", config=config)
    assert built.artifact.results["n_bytes"] == 4096 * n > 10_000_000
    assert built.ids(0, built.n_tokens).tolist() == [5] * n


def test_config_refuses_nonsense():
    with pytest.raises(ConfigError, match="max_documents is 0, but at least 1"):
        BuildConfig(tokenizer="t", max_documents=0)
    with pytest.raises(ConfigError, match="shard_tokens is 0"):
        BuildConfig(tokenizer="t", shard_tokens=0)
