"""Pythia's preshuffled Pile: rows come out whole however shards cut them; a shard that lacks is named."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import oracle_megatron_documents
from token_files import V, documents_of, imported, joined, write_uint16

from recallgap.corpus.formats import pythia
from recallgap.errors import CorpusError


def write_shards(folder, ids, shard_tokens):
    """The shards of one file of ids, all but the last of one size; given in any order."""
    pieces = [ids[i : i + shard_tokens] for i in range(0, len(ids), shard_tokens)]
    names = [f"document-{n:05d}-of-{len(pieces) - 1:05d}.bin" for n in range(len(pieces))]
    return [write_uint16(folder / name, piece) for name, piece in zip(names, pieces, strict=True)]


@settings(max_examples=30)
@given(
    n_rows=st.integers(1, 9),
    row=st.integers(1, 6),
    shard_tokens=st.integers(1, 20),
    data=st.data(),
    one=st.booleans(),
)
def test_rows_straddle_pythia_shards(n_rows, row, shard_tokens, data, one, tmp_path_factory):
    folder = tmp_path_factory.mktemp("p")
    ids = data.draw(st.lists(st.integers(0, V - 1), min_size=n_rows * row, max_size=n_rows * row))
    rows = [ids[i : i + row] for i in range(0, len(ids), row)]
    paths = [write_uint16(folder / "document.bin", ids)] if one else write_shards(folder, ids, shard_tokens)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pythia, "ROW", row)
        corpus = imported(data.draw(st.permutations(paths)), folder / "out", "pythia")
    assert documents_of(corpus) == rows
    firsts = np.cumsum([0] + [path.stat().st_size // 2 for path in paths])
    places = [firsts[r["shard"]] + r["offset"] for r in corpus.documents.to_pylist()]
    assert places == list(range(0, len(ids), row))
    pieces = [oracle_megatron_documents(corpus.path / f"tokens-{n:05d}") for n in range(len(paths))]
    assert joined(joined(pieces)) == ids, "the index of each shard describes the whole of it"


@pytest.fixture
def shards(tmp_path, monkeypatch):
    monkeypatch.setattr(pythia, "ROW", 5)
    return write_shards(tmp_path, list(range(30)), 8)


def test_the_first_pythia_shards_alone(shards, tmp_path, capsys):
    corpus = imported(shards[:2], tmp_path / "out", "pythia")
    assert documents_of(corpus) == [list(range(i, min(i + 5, 16))) for i in range(0, 16, 5)]
    assert (
        "00001-of-00003.bin ends inside a row: the last document has 1 tokens instead of 5"
        in capsys.readouterr().err
    )


def test_pythia_shards_that_do_not_fit(shards, tmp_path):
    with pytest.raises(CorpusError, match=r"document-00001-of-00003\.bin must be named once"):
        imported([shards[0], *shards[2:]], tmp_path / "out", "pythia")
    with pytest.raises(CorpusError, match=r"document-00001-of-00003\.bin must be named once"):
        imported([shards[0], shards[0]], tmp_path / "out", "pythia")
    with pytest.raises(CorpusError, match=r"document-00000-of-00003\.bin must be named once"):
        imported(shards[1:], tmp_path / "out", "pythia")
    other = write_uint16(tmp_path / "other-00001-of-00003.bin", [1] * 8)
    with pytest.raises(CorpusError, match=r"other-.*is a shard of another set"):
        imported([shards[0], other], tmp_path / "out", "pythia")
    plain = write_uint16(tmp_path / "document.bin", [1] * 5)
    with pytest.raises(CorpusError, match=r"not named as shards are, such as document-00000-of-00020\.bin"):
        imported([shards[0], plain], tmp_path / "out", "pythia")
    write_uint16(shards[1], [1] * 7)
    with pytest.raises(
        CorpusError, match=r"00001.*has 14 bytes, but document-00000-of-00003.bin has 16.*get it again"
    ):
        imported(shards, tmp_path / "out", "pythia")
    write_uint16(shards[1], [1] * 8)
    write_uint16(shards[3], [1] * 5)
    with pytest.raises(CorpusError, match=r"the 29 ids up to its end are not whole rows of 5, 4 are over"):
        imported(shards, tmp_path / "out", "pythia")
