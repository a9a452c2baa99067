"""Opening an artifact: whole, of the right kind and format, unchanged."""

import json

import pytest

from recallgap import artifact
from recallgap.artifact import file_sha256, fingerprint_of, open_artifact
from recallgap.errors import ArtifactError
from recallgap.staging import stage


@pytest.fixture
def folder(tmp_path):
    with stage(tmp_path / "out", kind="test", config={"size": 3}, inputs={}) as staging:
        for name in ("part-1.txt", "part-0.txt", "other.txt"):
            with staging.write(name) as path:
                path.write_text(name)
    return tmp_path / "out"


def test_files_come_in_order(folder):
    found = open_artifact(folder, "test").files("part-")
    assert [path.name for path in found] == ["part-0.txt", "part-1.txt"]


def change_meta(folder, **changes):
    meta = json.loads((folder / "meta.json").read_text())
    (folder / "meta.json").write_text(json.dumps({**meta, **changes}))


def test_the_fingerprint_is_of_the_work_and_not_of_the_version(folder):
    before = open_artifact(folder, "test").fingerprint
    change_meta(folder, recallgap_version="99")
    assert open_artifact(folder, "test").fingerprint == before
    change_meta(folder, config={"size": 4})
    assert open_artifact(folder, "test").fingerprint != before


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "meta.json").unlink(), r"no meta\.json"),
        (lambda folder: (folder / "meta.json").write_text("{"), r"meta\.json is not JSON"),
        (lambda folder: (folder / "other.txt").unlink(), r"its file other\.txt is missing"),
        (
            lambda folder: (folder / "other.txt").write_text("x"),
            r"other\.txt has 1 bytes, but 9 were written",
        ),
        (lambda folder: change_meta(folder, kind="labels"), r"kind 'labels', but 'test' is needed"),
        (
            lambda folder: change_meta(folder, format_version=7),
            r"format version 7, but this recallgap reads 1",
        ),
    ],
)
def test_what_is_wrong_is_said(damage, message, folder):
    damage(folder)
    with pytest.raises(ArtifactError, match=message):
        open_artifact(folder, "test")


def test_changed_content_is_found_in_small_artifacts_and_when_asked_in_large_ones(folder, monkeypatch):
    (folder / "other.txt").write_text("OTHER.TXT")
    with pytest.raises(ArtifactError, match=r"the content of other\.txt has changed"):
        open_artifact(folder, "test")
    monkeypatch.setattr(artifact, "ALWAYS_CHECKED", -1)
    open_artifact(folder, "test")
    with pytest.raises(ArtifactError, match=r"the content of other\.txt has changed"):
        open_artifact(folder, "test", check_content=True)


def test_there_is_no_such_folder(tmp_path):
    with pytest.raises(ArtifactError, match=r"opening test .*none: there is no such folder\.$"):
        open_artifact(tmp_path / "none", "test")


def test_hashes(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    assert file_sha256(tmp_path / "a") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert fingerprint_of({"a": 1, "b": [1, "x"]}) == fingerprint_of({"b": [1, "x"], "a": 1})
    assert fingerprint_of([1, 2]) != fingerprint_of([2, 1])


@pytest.mark.parametrize("content", ["[]", "{}", '{"kind": "test", "files": 3}'])
def test_a_record_of_another_shape_is_refused(folder, content):
    (folder / "meta.json").write_text(content)
    with pytest.raises(ArtifactError, match=r"meta\.json is not the record of an artifact"):
        open_artifact(folder, "test")
