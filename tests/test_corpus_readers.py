"""Readers: the right documents, or a CorpusError with file and line; nothing vanishes silently."""

import gzip
import json
import os

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recallgap.corpus.readers import READERS, ReadOptions, find_inputs, read
from recallgap.corpus.readers.documents import REPLACEMENT
from recallgap.corpus.readers.tables import ROWS_PER_BATCH
from recallgap.errors import ConfigError, CorpusError

TEXTS = ["one\n", "", "two caf\u00e9\r\n\x00 end", "\U0001f600" * 3]
ROWS = [{"text": text, "meta": {"pile_set_name": f"set {n % 2}"}} for n, text in enumerate(TEXTS)]


def documents(inputs, **options):
    options = ReadOptions(**options)
    paths = inputs if isinstance(inputs, list) else [inputs]
    return [document for file in find_inputs(paths, options) for document in read(file, options)]


def zstd(data):
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


def lines(rows=None):
    return "".join(json.dumps(row) + "\n" for row in rows or ROWS).encode()


def write_text(folder):
    for n, row in enumerate(ROWS):
        path = folder / "texts" / row["meta"]["pile_set_name"] / f"{n}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(row["text"].encode())
    return folder / "texts"


def write_jsonl(folder):
    (folder / "a.jsonl").write_bytes(lines())
    return folder / "a.jsonl"


def write_parquet(folder):
    pq.write_table(pa.Table.from_pylist(ROWS), folder / "a.parquet", row_group_size=3)
    return folder / "a.parquet"


def write_dataset(folder):
    datasets.Dataset.from_list(ROWS).save_to_disk(folder / "saved")
    return folder / "saved"


WRITERS = {"text": write_text, "jsonl": write_jsonl, "parquet": write_parquet, "datasets": write_dataset}


@pytest.mark.parametrize("name", READERS)
def test_every_reader_gives_the_documents_written(name, tmp_path):
    found = documents(WRITERS[name](tmp_path))
    assert sorted((d.text, d.domain) for d in found) == sorted(
        (row["text"], row["meta"]["pile_set_name"]) for row in ROWS
    )
    assert all(d.n_replaced == 0 and not d.source.startswith("/") for d in found)
    if name != "text":
        assert [d.text for d in found] == TEXTS
        assert [d.source.rpartition(":")[2] for d in found] == ["1", "2", "3", "4"]


@pytest.mark.parametrize("name", READERS)
def test_more_documents_than_fit_one_batch_of_rows(name, tmp_path, monkeypatch):
    rows = [{"text": str(n), "meta": {"pile_set_name": ""}} for n in range(2 * ROWS_PER_BATCH + 1)]
    monkeypatch.setitem(globals(), "ROWS", rows)
    found = documents(WRITERS[name](tmp_path))
    assert sorted(int(d.text) for d in found) == list(range(len(rows)))
    if name != "text":
        assert [d.source.rpartition(":")[2] for d in found] == [str(n + 1) for n in range(len(rows))]


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".zst", zstd)])
def test_compressed_lines(suffix, pack, tmp_path):
    """Several frames one after another are one file, as pigz, zstd -T and cat write them."""
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(pack(lines(ROWS[:1])) + pack(lines(ROWS[1:])))
    found = documents(path)
    assert [d.text for d in found] == TEXTS
    assert found[2].source == f"a.jsonl{suffix}:3"


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".zst", zstd)])
def test_truncated_compressed_file_names_file_and_line(suffix, pack, tmp_path):
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(pack(lines(ROWS[:2])) + pack(lines(ROWS))[:-9])
    with pytest.raises(CorpusError, match=rf"a\.jsonl\{suffix}:\d+: .*incomplete or damaged"):
        documents(path)
    whole, options = [], ReadOptions()
    big = b"".join(pack(lines([{"text": f"{n:0500}"}])) for n in range(5000))
    path.write_bytes(big[:-9])
    with pytest.raises(CorpusError, match=r":(\d{4}): "):
        for document in read(find_inputs([path], options)[0], options):
            whole.append(document)
    assert len(whole) > 1000, "what came before the fault is read"


def test_a_file_that_is_no_zstd(tmp_path):
    (tmp_path / "a.jsonl.zst").write_bytes(b"hello, I am no zstd file")
    with pytest.raises(CorpusError, match=r"a\.jsonl\.zst:1: .*damaged"):
        documents(tmp_path / "a.jsonl.zst")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"txt": "a"}', r"no field 'text' for the text, only: txt.*--text-field"),
        (b"{}", r"no field 'text' for the text, only: none"),
        (b'{"text": ', r"the line is not JSON"),
        (b'["text"]', r"JSON list, but an object"),
        (b'{"text": null}', r"field 'text' holds NoneType, but the text must be a string"),
        (b'{"text": 7}', r"field 'text' holds int"),
    ],
)
def test_a_wrong_line_is_named(line, message, tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "good"}\n\n' + line + b"\n")
    with pytest.raises(CorpusError, match=r"a\.jsonl:3: .*" + message):
        documents(tmp_path / "a.jsonl")


def test_lines_with_mark_carriage_returns_and_blanks(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'\xef\xbb\xbf{"text": "a\\r\\n"}\r\n\r\n  \n{"text": "b\\u0000"}')
    found = documents(tmp_path / "a.jsonl")
    assert [(d.text, d.source) for d in found] == [("a\r\n", "a.jsonl:1"), ("b\x00", "a.jsonl:4")]


def test_text_keeps_everything_but_the_mark(tmp_path):
    raw = b"\xef\xbb\xbfa\r\nb\x00\r\xef\xbb\xbfc"
    (tmp_path / "a.txt").write_bytes(raw)
    (found,) = documents(tmp_path / "a.txt")
    assert found.text.encode() == raw[3:]
    (tmp_path / "wide.txt").write_bytes("a".encode("utf-16"))
    with pytest.raises(CorpusError, match=r"wide\.txt:1: it starts as UTF-16"):
        documents(tmp_path / "wide.txt")


@pytest.mark.parametrize("name", ["text", "jsonl", "parquet"])
def test_invalid_utf8_is_replaced_and_counted_or_refused(name, tmp_path):
    """A replacement character that was there before is not counted."""
    raw = b"ok\n" + REPLACEMENT.encode() + b"\xff a \xe2\x82 b"
    if name == "text":
        path = tmp_path / "a.txt"
        path.write_bytes(raw)
    elif name == "jsonl":
        path = tmp_path / "a.jsonl"
        path.write_bytes(b'{"text": "' + raw.replace(b"\n", b"\\n") + b'"}\n')
    else:
        path = tmp_path / "a.parquet"
        texts = pa.StringArray.from_buffers(
            1, pa.py_buffer(b"\0\0\0\0" + bytes([len(raw), 0, 0, 0])), pa.py_buffer(raw)
        )
        pq.write_table(pa.table({"text": texts}), path)
    (found,) = documents(path)
    assert (found.text, found.n_replaced) == (f"ok\n{REPLACEMENT * 2} a {REPLACEMENT} b", 2)
    with pytest.raises(
        CorpusError, match=rf"{path.name}:1: byte \d+ of this record \(its line \d\) is not valid"
    ):
        documents(path, strict=True)


def test_a_lone_surrogate_in_json_is_replaced_and_counted_or_refused(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "x \\ud83d\\ude00 \\ud83d"}')
    (found,) = documents(tmp_path / "a.jsonl")
    assert (found.text, found.n_replaced) == (f"x \U0001f600 {REPLACEMENT}", 1)
    with pytest.raises(CorpusError, match=r"a\.jsonl:1: character 4 .*lone surrogate"):
        documents(tmp_path / "a.jsonl", strict=True)


def test_a_document_of_ten_megabytes(tmp_path):
    text = "0123456789" * (1 << 20)
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": text}))
    (tmp_path / "a.txt").write_text(text)
    assert [d.text == text for d in documents([tmp_path / "a.jsonl", tmp_path / "a.txt"])] == [True, True]


def test_empty_files(tmp_path):
    (tmp_path / "a.jsonl").touch()
    (tmp_path / "a.jsonl.zst").touch()
    (tmp_path / "a.txt").touch()
    assert documents([tmp_path / "a.jsonl", tmp_path / "a.jsonl.zst"]) == []
    assert [d.text for d in documents(tmp_path / "a.txt")] == [""]
    (tmp_path / "a.parquet").touch()
    with pytest.raises(CorpusError, match=r"a\.parquet:1: .*damaged"):
        documents(tmp_path / "a.parquet")


def test_fields_by_name(tmp_path):
    rows = [{"body": {"content": "a"}, "lang": "en"}, {"body": {"content": "b"}, "lang": "de"}]
    (tmp_path / "a.jsonl").write_bytes(lines(rows))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    for path in (tmp_path / "a.jsonl", tmp_path / "a.parquet"):
        found = documents(path, text_field="body.content", domain_field="lang")
        assert [(d.text, d.domain) for d in found] == [("a", "en"), ("b", "de")]
        assert [d.domain for d in documents(path, text_field="body.content")] == ["", ""]
        with pytest.raises(CorpusError, match=r"no field 'language' for the domain, only: body, lang"):
            documents(path, text_field="body.content", domain_field="language")
        with pytest.raises(CorpusError, match=r"no field 'body.contents' for the text"):
            documents(path, text_field="body.contents")
    with pytest.raises(ConfigError, match="text_field is empty"):
        ReadOptions(text_field="")


@pytest.mark.parametrize(("column", "message"), [([None], r"a\.parquet:1: .*NoneType"), ([3], "holds int64")])
def test_parquet_text_that_is_none(column, message, tmp_path):
    kind = pa.string() if column == [None] else pa.int64()
    pq.write_table(pa.table({"text": pa.array(column, kind)}), tmp_path / "a.parquet")
    with pytest.raises(CorpusError, match=message):
        documents(tmp_path / "a.parquet")


def test_parquet_dictionary_columns(tmp_path):
    text, domain = (pa.array(["a", "b", "a"]).dictionary_encode() for _ in range(2))
    pq.write_table(pa.table({"text": text, "domain": domain}), tmp_path / "a.parquet")
    assert [(d.text, d.domain) for d in documents(tmp_path / "a.parquet", domain_field="domain")] == [
        ("a", "a"),
        ("b", "b"),
        ("a", "a"),
    ]


def test_a_folder_is_read_in_sorted_order_each_file_by_its_suffix(tmp_path):
    for name in ("b/2.txt", "b/1.md", "a/deep/x.rst", "z.txt", ".hidden/a.txt", "b/.hidden"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    write_jsonl(tmp_path)
    found = [(d.source, d.domain) for d in documents(tmp_path) if not d.source.startswith("a.jsonl")]
    assert found == [("a/deep/x.rst:1", "a"), ("b/1.md:1", "b"), ("b/2.txt:1", "b"), ("z.txt:1", "")]
    assert len([d for d in documents(tmp_path) if d.source.startswith("a.jsonl")]) == len(ROWS)
    as_text = [d for d in documents(tmp_path, format="text") if d.source.startswith("a.jsonl")]
    assert [d.text.encode() for d in as_text] == [lines()]


def test_what_the_pile_field_holds_when_it_is_no_string(tmp_path):
    values = [None, 7, "x\ud83d"]
    rows = [{"text": "a", "meta": {"pile_set_name": value}} for value in values]
    (tmp_path / "news").mkdir()
    (tmp_path / "news" / "a.jsonl").write_bytes(lines([*rows, {"text": "a", "meta": []}]))
    assert [d.domain for d in documents(tmp_path)] == ["news", "7", f"x{REPLACEMENT}", "news"]


def test_a_file_name_that_is_not_utf8(tmp_path):
    (tmp_path / os.fsdecode(b"caf\xe9")).mkdir()
    (tmp_path / os.fsdecode(b"caf\xe9/a.txt")).write_text("a")
    (found,) = documents(tmp_path)
    assert (found.source, found.domain) == (f"caf{REPLACEMENT}/a.txt:1", f"caf{REPLACEMENT}")


def test_inputs_that_are_not_there(tmp_path):
    with pytest.raises(CorpusError, match=r"no such file or folder\.$"):
        find_inputs([tmp_path / "none.txt"], ReadOptions())
    with pytest.raises(CorpusError, match="For a dataset of the hub add --format datasets"):
        find_inputs(["someone/some-texts"], ReadOptions())
    (tmp_path / "empty").mkdir()
    with pytest.raises(CorpusError, match="it has no files"):
        find_inputs([tmp_path / "empty"], ReadOptions())
    with pytest.raises(ConfigError, match=r"unknown format 'json'\. Did you mean 'jsonl'"):
        find_inputs([tmp_path], ReadOptions(format="json"))


def test_splits_of_a_saved_dataset(tmp_path):
    halves = {"train": datasets.Dataset.from_list(ROWS[:3]), "test": datasets.Dataset.from_list(ROWS[3:])}
    datasets.DatasetDict(halves).save_to_disk(tmp_path / "both")
    with pytest.raises(CorpusError, match="several splits; pick one with --split: train, test"):
        documents(tmp_path / "both")
    with pytest.raises(CorpusError, match="no split 'valid'; pick one with --split: train, test"):
        documents(tmp_path / "both", dataset_split="valid")
    assert [d.text for d in documents(tmp_path / "both", dataset_split="test")] == TEXTS[3:]


@pytest.mark.parametrize("streaming", [False, True])
def test_a_hub_dataset_by_name(streaming, monkeypatch):
    asked = []

    def load_dataset(*args, **options):
        asked.append((args, options))
        rows = datasets.Dataset.from_list(ROWS)
        return rows.to_iterable_dataset() if options["streaming"] else rows

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    options = {
        "format": "datasets",
        "dataset_config": "all",
        "dataset_split": "train",
        "dataset_revision": "v1",
    }
    found = documents("someone/some-texts", streaming=streaming, **options)
    assert [d.text for d in found] == TEXTS
    assert found[3].source == "someone/some-texts:4"
    wanted = {"split": "train", "revision": "v1", "streaming": streaming}
    assert asked == [(("someone/some-texts", "all"), wanted)]


def test_a_hub_that_cannot_be_reached(monkeypatch):
    def load_dataset(*args, **options):
        raise ConnectionError("no network")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with pytest.raises(CorpusError, match="reading dataset someone/some-texts: no network"):
        documents("someone/some-texts", format="datasets")
