"""Token files as a corpus: the same stream, counts and labels, and every doubt is said."""

import json

import numpy as np
import pytest
from token_files import V, documents_of, imported, write_megatron, write_uint16
from typer.testing import CliRunner

from recallgap.cli import main
from recallgap.corpus import (
    BuildConfig,
    ImportConfig,
    build_corpus,
    import_corpus,
    linking,
    load_tokenizer,
    tokens_sha256,
    write_corpus,
)
from recallgap.counts import count_ngrams
from recallgap.errors import ConfigError, CorpusError
from recallgap.recall import LabelConfig, label

RUNNER = CliRunner()


@pytest.fixture(scope="module")
def built(tokenizer_file, tmp_path_factory):
    """A corpus built from text, in several shards."""
    folder = tmp_path_factory.mktemp("built")
    words = ["the", "quick", "brown", "fox", "<|endoftext|>"]
    random = np.random.default_rng(0)
    texts = [" ".join(random.choice(words, random.integers(1, 30))) for _ in range(40)]
    (folder / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    config = BuildConfig(tokenizer=str(tokenizer_file), shard_tokens=200)
    return build_corpus([folder / "a.jsonl"], folder / "corpus", config=config)


@pytest.fixture
def token_path(tmp_path):
    """Three documents, the last without a separator (id 0)."""
    return write_megatron(tmp_path / "text", [[[1, 2, 0]], [[3], [4, 0]], [[5]]])


def test_our_own_shards_come_back(built, tokenizer_file, tmp_path):
    shards = sorted(built.path.glob("tokens-*.bin"))
    assert len(shards) > 2
    config = ImportConfig(format="megatron", tokenizer=str(tokenizer_file), separator_id=0, domain="prose")
    corpus = import_corpus(shards, tmp_path / "out", config=config)
    assert documents_of(corpus) == documents_of(built)
    assert tokens_sha256(corpus) == tokens_sha256(built)
    assert corpus.tokenizer_fingerprint == built.tokenizer_fingerprint
    assert (corpus.vocab_size, corpus.separator_id) == (built.vocab_size, 0)
    assert corpus.results["domains"].keys() == {"prose"} == set(corpus.documents["domain"].to_pylist())
    spelt = built.results["n_separators_in_text"]
    assert corpus.results["n_separators"] == built.n_documents + spelt > built.n_documents
    assert corpus.tokenizer().decode(corpus.ids(0, 20)) == built.tokenizer().decode(built.ids(0, 20))
    for number, shard in enumerate(shards):
        link = corpus.path / f"tokens-{number:05d}.bin"
        assert link.readlink() == shard
        assert link.with_suffix(".idx").read_bytes() == shard.with_suffix(".idx").read_bytes()


def test_counts_and_labels_of_an_import_are_those_of_the_corpus(built, tokenizer_file, tmp_path):
    config = ImportConfig(format="megatron", tokenizer=str(tokenizer_file), separator_id=0)
    corpus = import_corpus(sorted(built.path.glob("*.bin")), tmp_path / "out", config=config)
    found = []
    for name, one in (("a", built), ("b", corpus)):
        counts = count_ngrams([one], tmp_path / f"counts-{name}", for_corpus=one)
        config = LabelConfig(context_len=64)
        found.append(label(one, counts, tmp_path / f"labels-{name}", config=config).results)
    assert found[0] == found[1]
    assert found[0]["n_ar_hits"] > 0


def test_corpora_of_both_widths_come_back(tmp_path):
    for vocab_size in (65536, 65537):
        documents = [[0, vocab_size - 1], [], [65535]]
        ours = write_corpus(tmp_path / f"{vocab_size}", documents, vocab_size=vocab_size)
        config = ImportConfig(format="megatron", vocab_size=vocab_size)
        out = tmp_path / f"{vocab_size}-out"
        corpus = import_corpus([ours.path / "tokens-00000.bin"], out, config=config)
        assert documents_of(corpus) == documents
        assert corpus.results["dtype"] == ("uint16" if vocab_size == 65536 else "int32")


def test_files_of_different_types_are_one_stream(tmp_path):
    paths = [write_megatron(tmp_path / f"{code}", [[[code, 7]]], code=code) for code in (8, 4, 1, 5)]
    corpus = imported(paths, tmp_path / "out", "megatron")
    assert corpus.ids(0, 8).tolist() == [8, 7, 4, 7, 1, 7, 5, 7]
    assert corpus.results["dtype"] == "int32, int64, uint16, uint8"


@pytest.mark.parametrize(
    ("ids", "code", "message"),
    [
        ([[[1, V - 1]], [[2, 3], [V]]], 8, r"position 4 \(token 2 of document 1, both from 0\) is 120"),
        ([[[1, 2, 3, 4, 5]], [], [[-1]]], 2, r"position 5 \(token 0 of document 2, both from 0\) is -1"),
        ([[[1 << 40]]], 5, r"position 0 .* is 1099511627776, but the vocabulary has 120 entries"),
    ],
)
def test_an_id_beyond_the_vocabulary_is_named(ids, code, message, tmp_path, monkeypatch):
    monkeypatch.setattr("recallgap.corpus.formats.token_file.BLOCK", 2)
    path = write_megatron(tmp_path / "a", ids, code=code)
    with pytest.raises(CorpusError, match=r"importing .*a\.bin: the id at " + message):
        imported(path, tmp_path / "out", "megatron")
    assert not (tmp_path / "out").exists()


def test_what_is_doubtful_is_said(tokenizer_file, tmp_path, capsys):
    path = write_uint16(tmp_path / "a.bin", [1, 0, 2, 0])
    import_corpus(
        [path], tmp_path / "a", config=ImportConfig(format="nanogpt", tokenizer=str(tokenizer_file))
    )
    shown = capsys.readouterr().err
    assert "nothing says where documents end in a.bin: each file is one document" in shown
    assert "id 0, the tokenizer's end of text, occurs 2 times" in shown
    imported(path, tmp_path / "b", "nanogpt", separator_id=7)
    assert "the separator id 7 never occurs" in capsys.readouterr().err
    imported(path, tmp_path / "c", "nanogpt", separator_id=0)
    assert "corpus import: 4 of 4 tokens" in (shown := capsys.readouterr().err)
    assert len(shown.splitlines()) == 1


def test_a_document_longer_than_an_index_can_hold(tmp_path, monkeypatch):
    monkeypatch.setattr(linking, "LONGEST", 3)
    paths = [write_uint16(tmp_path / f"{n}.bin", ids) for n, ids in enumerate(([1, 0], [1, 0, 1, 1, 1, 1]))]
    with pytest.raises(
        CorpusError, match=r"1\.bin: document 1 \(from 0\) would have 4 tokens.*--separator-id"
    ):
        imported(paths, tmp_path / "out", "nanogpt", separator_id=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "megatorn", "vocab_size": 9}, r"unknown format 'megatorn'\. Did you mean 'megatron'"),
        ({"format": "megatron"}, "give one of --tokenizer and --vocab-size"),
        ({"format": "megatron", "vocab_size": 9, "tokenizer": "t.json"}, "give one of"),
        ({"format": "megatron", "vocab_size": 0}, "vocab_size is 0"),
        (
            {"format": "megatron", "vocab_size": 9, "separator_id": 9},
            "separator_id is 9, but the vocabulary has 9",
        ),
        ({"format": "megatron", "vocab_size": 9, "separator_id": -1}, "separator_id is -1"),
    ],
)
def test_config_refuses_nonsense(options, message, token_path, tmp_path):
    with pytest.raises(ConfigError, match=message):
        import_corpus([token_path], tmp_path / "out", config=ImportConfig(**options))


def test_the_command(token_path, tokenizer_file, tmp_path):
    out = tmp_path / "out"
    options = ["--format", "megatron", "--tokenizer", tokenizer_file, "--separator-id", 0, "-o", out]
    done = RUNNER.invoke(main.app, ["corpus", "import", *map(str, [token_path, *options])])
    assert done.exit_code == 0, done.output
    start = (
        f"{out}: 7 tokens in 3 documents (from the document index), 2 separators (id 0), 1 file(s) of uint16"
    )
    assert done.stdout.startswith(start)
    again = RUNNER.invoke(main.app, ["corpus", "import", *map(str, [token_path, *options])])
    assert again.stdout == f"{start}; there already\n"
    shown = RUNNER.invoke(main.app, ["corpus", "info", str(out)])
    assert shown.exit_code == 0, shown.output
    assert "from 1 file(s): text.bin" in shown.stdout
    assert load_tokenizer(out).fingerprint == load_tokenizer(tokenizer_file).fingerprint


def test_mistakes_in_the_command_are_one_message_and_exit_2(token_path, tmp_path, monkeypatch, capsys):
    arguments = ["corpus", "import", str(token_path), "--format", "pythia", "--vocab-size", "9", "-o", "out"]
    monkeypatch.setattr("sys.argv", ["recallgap", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main.main()
    assert stopped.value.code == 2
    assert capsys.readouterr().err.startswith(f"recallgap: importing {token_path}: the 7 ids up to")


def test_formats_are_listed():
    shown = RUNNER.invoke(main.app, ["list", "formats"])
    assert [line.split()[0] for line in shown.stdout.splitlines()] == ["megatron", "nanogpt", "npy", "pythia"]
