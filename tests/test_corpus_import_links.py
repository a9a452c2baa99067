"""Linked token files: the corpus does not depend on where they lie and notices what happens to them."""

import hashlib
import shutil
import subprocess

import numpy as np
import pytest
from token_files import V, documents_of, imported, write_megatron

from recallgap import staging
from recallgap.artifact import open_artifact, staging_path
from recallgap.corpus import ImportConfig, import_corpus, open_corpus, write_corpus
from recallgap.errors import ArtifactError, ConfigError


@pytest.fixture
def token_path(tmp_path):
    """Three documents, the last without a separator (id 0)."""
    return write_megatron(tmp_path / "text", [[[1, 2, 0]], [[3], [4, 0]], [[5]]])


def content(path):
    """What must not depend on how and from where the corpus was made: every file but run.json."""
    files = [p for p in path.iterdir() if p.name != "run.json"]
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def test_the_place_of_the_files_does_not_count(token_path, tmp_path, monkeypatch):
    first = imported(token_path, tmp_path / "a", "megatron", separator_id=0)
    for file in (token_path, token_path.with_suffix(".idx")):
        (tmp_path / "moved").mkdir(exist_ok=True)
        shutil.copy(file, tmp_path / "moved" / file.name)
    monkeypatch.chdir(tmp_path)
    again = imported("moved/text", "b", "megatron", separator_id=0)
    assert again.fingerprint == first.fingerprint
    assert content(again.path) == content(first.path)
    monkeypatch.chdir("/")
    assert documents_of(open_corpus(tmp_path / "b")) == [[1, 2, 0], [3, 4, 0], [5]]


def test_a_change_of_the_linked_file_is_noticed(token_path, tmp_path):
    out = imported(token_path, tmp_path / "out", "megatron").path
    raw = token_path.read_bytes()
    token_path.write_bytes(raw[:-2] + b"\x09\x00")
    with pytest.raises(ArtifactError, match=r"content of tokens-00000\.bin has changed"):
        open_artifact(out, "corpus", check_content=True)
    token_path.write_bytes(raw + raw)
    with pytest.raises(ArtifactError, match=r"tokens-00000\.bin has 28 bytes, but 14 were written"):
        open_corpus(out)
    token_path.unlink()
    with pytest.raises(
        ArtifactError, match=r"tokens-00000\.bin is (missing|a link to .*text.bin, which is not there)"
    ):
        open_corpus(out)
    token_path.write_bytes(raw)
    assert open_corpus(out).n_tokens == 7


def test_a_copy_that_follows_links_stands_on_its_own(token_path, tmp_path):
    corpus = imported(token_path, tmp_path / "out", "megatron")
    subprocess.run(["cp", "-rL", corpus.path, tmp_path / "own"], check=True)
    shutil.move(corpus.path, tmp_path / "elsewhere")
    assert open_corpus(tmp_path / "elsewhere").fingerprint == corpus.fingerprint
    token_path.unlink()
    own = open_corpus(tmp_path / "own")
    assert own.fingerprint == corpus.fingerprint
    assert documents_of(own) == [[1, 2, 0], [3, 4, 0], [5]]


def test_replacing_an_import_leaves_its_files_alone(token_path, tmp_path):
    before = token_path.read_bytes()
    imported(token_path, tmp_path / "out", "megatron")
    config = ImportConfig(format="megatron", vocab_size=V, separator_id=0)
    with pytest.raises(ArtifactError, match=r"config\.separator_id is null there, 0 now"):
        import_corpus([token_path], tmp_path / "out", config=config)
    import_corpus([token_path], tmp_path / "out", config=config, overwrite=True)
    assert token_path.read_bytes() == before


def test_files_inside_the_folder_to_replace_are_not_lost(tmp_path):
    ours = write_corpus(tmp_path / "c", [[1, 2]], vocab_size=V)
    with pytest.raises(ConfigError, match=r"tokens-00000\.bin: it lies inside the output"):
        config = ImportConfig(format="megatron", vocab_size=V)
        import_corpus([ours.path / "tokens-00000"], ours.path, config=config, overwrite=True)
    assert documents_of(open_corpus(ours.path)) == [[1, 2]]


@pytest.mark.parametrize("change", [{"domain": "x"}, {"vocab_size": 99}, {"separator_id": 0}])
def test_every_setting_is_in_the_plan_and_the_same_again_does_nothing(
    change, token_path, tmp_path, monkeypatch
):
    settings = {"format": "megatron", "vocab_size": V}
    first = import_corpus([token_path], tmp_path / "out", config=ImportConfig(**settings))
    with monkeypatch.context() as patched:
        patched.setattr("recallgap.corpus.importing.stage", None)
        again = import_corpus([token_path], tmp_path / "out", config=ImportConfig(**settings))
    assert again.fingerprint == first.fingerprint
    with pytest.raises(ArtifactError, match="was made with other settings"):
        import_corpus([token_path], tmp_path / "out", config=ImportConfig(**{**settings, **change}))


class Killed(BaseException):
    """Stands for a kill: no handler of the library may catch it."""


def test_an_import_killed_at_any_file_ends_in_the_same_bytes(tmp_path, monkeypatch):
    np.save(tmp_path / "a.npy", np.array([1, 2, 3]))
    paths = [write_megatron(tmp_path / f"{n}", [[[n, 0]]]) for n in range(2)]
    whole = {"megatron": imported(paths, tmp_path / "w", "megatron").path}
    whole["npy"] = imported(tmp_path / "a.npy", tmp_path / "n", "npy").path
    rename, calls = staging.os.rename, []

    def dying(source, target):
        calls.append(target)
        if len(calls) == die_at:
            raise Killed
        rename(source, target)

    monkeypatch.setattr(staging.os, "rename", dying)
    for die_at in range(1, 9):
        for name, given in (("megatron", paths), ("npy", tmp_path / "a.npy")):
            calls.clear()
            out = tmp_path / f"{name}-{die_at}"
            try:
                imported(given, out, name)
            except Killed:
                assert staging_path(out).exists()
                assert not out.exists()
            calls.extend([None] * 99)
            assert content(imported(given, out, name).path) == content(whole[name])
