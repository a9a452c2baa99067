"""The Pile by hub name, streamed: every document and its domain once, however often the build is stopped."""

import hashlib
import itertools
import json

import datasets
import pytest
import zstandard
from pile import DOMAINS, NAME, serve, write_pile

from recallgap.corpus import BuildConfig, build, build_corpus
from recallgap.corpus.readers import tables
from recallgap.errors import CorpusError


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_pile(tmp_path_factory.mktemp("pile"))


@pytest.fixture
def streamed(folder, tokenizer_file, monkeypatch):
    """Builds the streamed Pile, given an output and settings."""
    serve(monkeypatch, folder)
    monkeypatch.setattr(build, "BATCH_CHARACTERS", 5000)

    def run(out, **settings):
        source = {"format": "datasets", "dataset_split": "train", "streaming": True}
        config = BuildConfig(tokenizer=str(tokenizer_file), **{**source, "shard_tokens": 4000, **settings})
        return build_corpus([NAME], out, config=config)

    return run


def written(folder):
    """(text, domain) of the training documents with text, and how many have none, read plainly."""
    found, n_empty = [], 0
    for path in sorted((folder / "train").iterdir()):
        for line in zstandard.decompress(path.read_bytes()).decode().splitlines():
            row = json.loads(line)
            n_empty += row["text"] == ""
            if row["text"]:
                found.append((row["text"], row["meta"]["pile_set_name"]))
    return found, n_empty


def content(corpus):
    files = [p for p in corpus.path.iterdir() if p.name != "run.json"]
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def texts(corpus):
    decode, bounds = corpus.tokenizer().decode, corpus.document_bounds_N1.tolist()
    return [decode(corpus.ids(*pair)).removesuffix("<|endoftext|>") for pair in itertools.pairwise(bounds)]


def test_every_document_and_its_domain_once(streamed, folder, tmp_path):
    corpus = streamed(tmp_path / "out")
    expected, n_empty = written(folder)
    assert len(expected) > 4 * tables.ROWS_PER_BATCH - n_empty
    assert list(zip(texts(corpus), corpus.documents["domain"].to_pylist(), strict=True)) == expected
    assert corpus.results["n_empty"] == n_empty > 0
    assert corpus.results["n_shards"] > 4
    assert set(corpus.results["domains"]) == set(DOMAINS)
    sources = corpus.documents["source"].to_pylist()
    assert sources[0] == f"{NAME}:2"
    assert len(set(sources)) == len(sources)


class Killed(BaseException):
    """Stands for a kill: no handler of the library may catch it."""


@pytest.mark.parametrize("n_shards", [1, 3])
@pytest.mark.parametrize("max_documents", [None, 700])
def test_a_killed_build_goes_on_without_loss_or_double(
    n_shards, max_documents, streamed, tmp_path, monkeypatch
):
    whole = streamed(tmp_path / "whole", max_documents=max_documents)
    written = []

    def write_shard(*args, write=build.write_shard):
        write(*args)
        written.append(args)
        if len(written) == n_shards:
            raise Killed

    monkeypatch.setattr(build, "write_shard", write_shard)
    with pytest.raises(Killed):
        streamed(tmp_path / "out", max_documents=max_documents)
    again = streamed(tmp_path / "out", max_documents=max_documents)
    assert len(written) == whole.results["n_shards"] > n_shards, "finished shards are not written again"
    assert content(again) == content(whole)


def test_a_connection_that_breaks_is_one_message_and_the_build_goes_on(streamed, tmp_path, monkeypatch):
    whole = streamed(tmp_path / "whole")
    iterate = datasets.IterableDataset.iter

    def breaking(self, **options):
        for number, table in enumerate(iterate(self, **options)):
            if number == 3:
                raise RuntimeError("peer closed connection")
            yield table

    with monkeypatch.context() as patched:
        patched.setattr(datasets.IterableDataset, "iter", breaking)
        with pytest.raises(
            CorpusError,
            match=rf"dataset {NAME}: row 769 and .*RuntimeError: peer closed.*run the same command",
        ):
            streamed(tmp_path / "out")
    assert content(streamed(tmp_path / "out")) == content(whole)


@pytest.mark.parametrize("n", [1, 300, 10**6])
def test_the_first_documents_only(n, streamed, folder, tmp_path):
    corpus = streamed(tmp_path / "out", max_documents=n)
    expected = written(folder)[0][:n]
    assert texts(corpus) == [text for text, _ in expected]


def test_a_file_that_is_damaged_on_the_way(streamed, folder, tmp_path, monkeypatch):
    damaged = write_pile(tmp_path / "damaged")
    (damaged / "train" / "01.jsonl.zst").write_bytes(b"no zstd file")
    serve(monkeypatch, damaged)
    with pytest.raises(CorpusError, match=r"row \d+ and those after it cannot be had \(\w+"):
        streamed(tmp_path / "out")


def test_the_same_files_downloaded_make_the_same_tokens(streamed, folder, tokenizer_file, tmp_path):
    config = BuildConfig(tokenizer=str(tokenizer_file), shard_tokens=4000)
    local = build_corpus([folder / "train"], tmp_path / "local", config=config)
    hub = streamed(tmp_path / "hub")
    for name in ("tokens-00000.bin", "tokens-00001.idx"):
        assert content(local)[name] == content(hub)[name]
    assert local.results["domains"] == hub.results["domains"]
