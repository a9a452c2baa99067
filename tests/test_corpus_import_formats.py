"""Formats of token files: what others wrote comes out; what is damaged is refused, naming file and place."""

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import oracle_megatron_documents
from token_files import (
    TYPES,
    V,
    documents_of,
    imported,
    joined,
    megatron_index,
    split_at,
    write_megatron,
    write_uint16,
)

from recallgap.corpus.formats import FORMATS, token_file
from recallgap.errors import CorpusError

IDS = st.lists(st.integers(0, V - 1), max_size=7)
DOCUMENTS = st.lists(st.lists(IDS, max_size=3), max_size=8)


@settings(max_examples=30)
@given(
    files=st.lists(DOCUMENTS, min_size=1, max_size=3),
    code=st.sampled_from(sorted(TYPES)),
    block=st.integers(1, 9),
)
def test_megatron_gives_the_documents_written(files, code, block, tmp_path_factory):
    folder = tmp_path_factory.mktemp("m")
    expected = [joined(document) for documents in files for document in documents]
    paths = [write_megatron(folder / f"{n}.part", documents, code=code) for n, documents in enumerate(files)]
    if not joined(expected):
        with pytest.raises(CorpusError, match="there is no token in it"):
            imported(paths, folder / "out", "megatron")
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(token_file, "BLOCK", block)
        corpus = imported(paths, folder / "out", "megatron")
    assert documents_of(corpus) == expected
    assert corpus.results["n_tokens"] == len(joined(expected)) == corpus.n_tokens
    assert corpus.results["n_documents"] == len(expected) == corpus.n_documents
    assert corpus.results["longest_document"]["n_tokens"] == max(map(len, expected))
    rows = corpus.documents.to_pylist()
    assert [row["source"] for row in rows] == [
        f"{n}.part.bin:{i}" for n, documents in enumerate(files) for i in range(1, len(documents) + 1)
    ]
    for number, documents in enumerate(files):
        seen = oracle_megatron_documents(corpus.path / f"tokens-{number:05d}")
        assert [d for d in seen if d] == [joined(d) for d in documents if joined(d)]


@settings(max_examples=20)
@given(documents=DOCUMENTS, separator=st.one_of(st.none(), st.integers(0, 3)))
def test_a_megatron_index_without_documents(documents, separator, tmp_path_factory):
    """Split at the separator where one is named, else one document a sequence."""
    folder = tmp_path_factory.mktemp("m")
    documents = [[[1, 2]], *documents]
    path = write_megatron(folder / "a", documents, has_documents=False)
    corpus = imported(path, folder / "out", "megatron", separator_id=separator)
    sequences = [sequence for document in documents for sequence in document]
    expected = sequences if separator is None else split_at(joined(sequences), separator)
    assert documents_of(corpus) == expected
    assert corpus.results["n_separators"] == (0 if separator is None else joined(sequences).count(separator))


@pytest.mark.parametrize("name", ["text.bin", "text.idx", "text"])
def test_megatron_files_by_any_of_their_names(name, tmp_path):
    write_megatron(tmp_path / "text", [[[1, 2]], [[3]]])
    assert documents_of(imported(tmp_path / name, tmp_path / "out", "megatron")) == [[1, 2], [3]]


def test_the_document_index_goes_before_separators(tmp_path):
    path = write_megatron(tmp_path / "a", [[[1, 0]], [[2, 0, 3, 0]]])
    corpus = imported(path, tmp_path / "out", "megatron", separator_id=0)
    assert documents_of(corpus) == [[1, 0], [2, 0, 3, 0]]
    assert corpus.results["n_separators"] == 3


def index(lengths=(2, 1), borders=(0, 1, 2), code=8, itemsize=2):
    return megatron_index(lengths, itemsize, code, borders)


POINTER_1 = 34 + 2 * 4 + 8
"""Where the second byte pointer of an index of two sequences stands."""


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "does not start as a Megatron index does"),
        (index()[:33], "does not start as a Megatron index does"),
        (b"TNTIDX\x00\x00" + bytes(40), "older TNTIDX format"),
        (index()[:9] + b"\x02" + index()[10:], "version 2 and dtype code 8"),
        (index(code=6), "dtype code 6"),
        (index()[:-1], r"need 82 bytes, but it has 81; it is damaged or cut off"),
        (index() + b"\0", r"need 82 bytes, but it has 83; it is damaged"),
        (index() + b"\0\0", r"it looks multimodal"),
        (index()[:18] + struct.pack("<Q", 1 << 60) + index()[26:], r"need [\d,]+ bytes, but it has 82"),
        (index(lengths=(2, 2)), r"have 4 tokens in all, but a\.bin holds 3"),
        (index(lengths=(4, -1)), r"sequence 1 has a length of -1"),
        (
            index()[:POINTER_1] + b"\x02" + index()[POINTER_1 + 1 :],
            r"sequence 1 of 2 starts at byte 2, .*end at byte 4",
        ),
        (index(borders=(0, 2, 1, 2)), r"border 2 of its document index is sequence 1"),
        (index(borders=(1, 2)), r"border 0 of its document index is sequence 1"),
        (index(borders=(0, 1)), r"document index ends at sequence 1 of 2.*import the parts"),
        (index(code=4, itemsize=4), r"6 bytes is not a whole number of 4-byte ids"),
    ],
)
def test_a_damaged_megatron_index_is_refused(raw, message, tmp_path):
    write_megatron(tmp_path / "a", [[[1, 2]], [[3]]])
    assert (tmp_path / "a.idx").read_bytes() == index()
    (tmp_path / "a.idx").write_bytes(raw)
    with pytest.raises(CorpusError, match=r"importing .*a\.(idx|bin): .*" + message):
        imported(tmp_path / "a.bin", tmp_path / "out", "megatron")
    assert not (tmp_path / "out").exists()


@settings(max_examples=20)
@given(files=st.lists(IDS, min_size=1, max_size=3), separator=st.integers(0, 3), block=st.integers(1, 9))
def test_nanogpt_is_split_behind_separators(files, separator, block, tmp_path_factory):
    folder = tmp_path_factory.mktemp("n")
    files = [[7, *ids] for ids in files]
    paths = [write_uint16(folder / f"{n}.bin", ids) for n, ids in enumerate(files)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(token_file, "BLOCK", block)
        corpus = imported(paths, folder / "out", "nanogpt", separator_id=separator)
    assert documents_of(corpus) == [document for ids in files for document in split_at(ids, separator)]
    assert documents_of(imported(paths, folder / "one", "nanogpt")) == files


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"abc", "3 bytes is not a whole number of 2-byte ids"),
        (b"\x93NUMPY\x01\x00", "begins as a NumPy file: use --format npy"),
        (
            struct.pack("<256i", 20240520, 1, 5, *[0] * 253),
            r"begins as an llm\.c file: cut its 1024-byte header",
        ),
        (b"", "there is no token in it"),
    ],
)
def test_what_is_no_nanogpt_file(raw, message, tmp_path):
    (tmp_path / "a.bin").write_bytes(raw)
    with pytest.raises(CorpusError, match=r"importing .*a\.bin: .*" + message):
        imported(tmp_path / "a.bin", tmp_path / "out", "nanogpt")


@pytest.mark.parametrize("dtype", ["u1", "i1", "<u2", ">u2", "<i4", "<u4", ">i8", "<u8"])
@pytest.mark.parametrize("width", [None, 1, 3])
def test_npy_of_any_integers(dtype, width, tmp_path):
    ids = np.array([1, 0, 119, 3, 0, 5], dtype)
    np.save(tmp_path / "a.npy", ids if width is None else ids.reshape(-1, width))
    corpus = imported(tmp_path / "a.npy", tmp_path / "out", "npy", separator_id=0)
    expected = split_at(ids.tolist(), 0) if width is None else ids.reshape(-1, width).tolist()
    assert documents_of(corpus) == expected
    assert not (corpus.path / "tokens-00000.bin").is_symlink()
    assert oracle_megatron_documents(corpus.path / "tokens-00000") == expected


def save_npz(path):
    with open(path, "wb") as file:
        np.savez(file, a=np.arange(3))


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda path: np.save(path, np.ones(3)), "1-D float64, but a 1-D or 2-D array of integers"),
        (lambda path: np.save(path, np.ones((2, 2, 2), int)), "3-D int64"),
        (lambda path: np.save(path, np.array([[1], "a"], object)), "NumPy cannot map it"),
        (lambda path: np.save(path, np.asfortranarray(np.ones((2, 3), int))), "stored column by column"),
        (
            lambda path: path.write_bytes(b"\x01\x02\x03\x04"),
            "Bare uint16 ids of any name are --format nanogpt",
        ),
        (
            lambda path: (np.save(path, np.arange(9)), path.write_bytes(path.read_bytes()[:-8])),
            "cannot map it",
        ),
        (
            lambda path: (np.save(path, np.arange(9)), path.write_bytes(path.read_bytes() + b"x")),
            "it has 201",
        ),
        (lambda path: np.save(path, np.array([], int)), "no token in it|cannot map"),
        (save_npz, "an archive of arrays"),
        (lambda path: path.touch(), "NumPy cannot map it"),
    ],
)
def test_npy_files_that_are_refused(write, message, tmp_path):
    write(tmp_path / "a.npy")
    with pytest.raises(CorpusError, match=r"importing .*a\.npy: .*(" + message + ")"):
        imported(tmp_path / "a.npy", tmp_path / "out", "npy")


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_says_what_it_reads_and_refuses_what_is_not_there(name, tmp_path):
    assert len(FORMATS[name].__doc__.splitlines()) == 1
    with pytest.raises(CorpusError, match=r"importing .*none.*: there is no such file"):
        imported(tmp_path / "none", tmp_path / "out", name)
    (tmp_path / "folder.bin").mkdir()
    with pytest.raises(CorpusError, match=r"folder.bin: it is a folder"):
        imported(tmp_path / "folder.bin", tmp_path / "out", name)
