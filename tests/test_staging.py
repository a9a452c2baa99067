"""Artifacts are written whole or not at all, by one writer, from one plan."""

import errno
import json
import os
import signal
import subprocess
import sys

import pytest

from recallgap.artifact import open_artifact, staging_path
from recallgap.errors import ArtifactError
from recallgap.staging import stage, up_to_date

PLAN = {"kind": "test", "config": {"size": 3, "deep": {"a": [1, 2]}}, "inputs": {"corpus": "ab" * 32}}


def write(target, text="data", **changes):
    with stage(target, **{**PLAN, **changes}) as staging:
        with staging.write("data.txt") as path:
            path.write_text(text)
        staging.results = {"n": len(text)}


class Killed(BaseException):
    """Stands for a kill."""


def test_a_finished_artifact_says_what_it_is(tmp_path):
    write(tmp_path / "out")
    found = open_artifact(tmp_path / "out", "test", check_content=True)
    assert (found.config, found.inputs, found.results) == (PLAN["config"], PLAN["inputs"], {"n": 4})
    assert sorted(p.name for p in found.path.iterdir()) == ["data.txt", "meta.json", "run.json"]
    assert not staging_path(tmp_path / "out").exists()
    write(tmp_path / "deep" / "er" / "again")
    again = open_artifact(tmp_path / "deep" / "er" / "again", "test")
    assert again.fingerprint == found.fingerprint
    assert (again.path / "meta.json").read_bytes() == (found.path / "meta.json").read_bytes()


def test_a_half_written_artifact_is_never_opened(tmp_path):
    with pytest.raises(Killed), stage(tmp_path / "out", **PLAN) as staging:
        with staging.write("data.txt") as path:
            path.write_text("data")
        raise Killed
    with pytest.raises(ArtifactError, match=r"no such folder\. An unfinished one is at .*\.out\.partial"):
        open_artifact(tmp_path / "out", "test")
    with pytest.raises(ArtifactError, match=r"no meta\.json, so it is no finished artifact"):
        open_artifact(staging_path(tmp_path / "out"), "test")


def test_a_half_written_file_is_never_taken_for_a_finished_one(tmp_path):
    with pytest.raises(Killed), stage(tmp_path / "out", **PLAN) as staging, staging.write("data.txt") as path:
        path.write_text("da")
        raise Killed
    with stage(tmp_path / "out", **PLAN) as staging:
        assert not staging.done("data.txt")
        assert not list(staging.path.glob("*.half"))
        with staging.write("data.txt") as path:
            path.write_text("data")
        assert staging.done("data.txt")


def test_an_interrupted_one_is_continued_by_the_same_plan_only(tmp_path):
    with pytest.raises(Killed), stage(tmp_path / "out", **PLAN) as staging:
        with staging.write("data.txt") as path:
            path.write_text("data")
        raise Killed
    other = {**PLAN, "config": {"size": 4, "deep": {"a": [1, 3]}}}
    with pytest.raises(ArtifactError) as refused, stage(tmp_path / "out", **other):
        pass
    message = str(refused.value)
    assert "config.size is 3 there, 4 now" in message
    assert "config.deep.a is [1, 2] there, [1, 3] now" in message
    assert "--overwrite" in message
    with stage(tmp_path / "out", **PLAN) as staging:
        assert staging.done("data.txt")
    with pytest.raises(Killed), stage(tmp_path / "other", **PLAN) as staging:
        with staging.write("data.txt") as path:
            path.write_text("data")
        raise Killed
    with stage(tmp_path / "other", **other, overwrite=True) as staging:
        assert not staging.done("data.txt")


def test_an_unfinished_one_without_a_file_gives_way_to_another_plan(tmp_path):
    """As when the first run failed at once, over a mistake in its input that was then put right."""
    with pytest.raises(Killed), stage(tmp_path / "out", **PLAN):
        raise Killed
    write(tmp_path / "out", config={"size": 4})
    assert open_artifact(tmp_path / "out", "test").config == {"size": 4}


def test_a_kill_just_before_the_last_rename(tmp_path, monkeypatch):
    """plan.json is gone by then; another plan must not inherit the files."""

    def rename(source, target):
        if target == tmp_path / "out":
            raise Killed
        real(source, target)

    real = os.rename
    monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(Killed):
        write(tmp_path / "out")
    monkeypatch.undo()
    with pytest.raises(ArtifactError, match=r"config\.size is 3 there, 4 now"):
        write(tmp_path / "out", config={"size": 4, "deep": {"a": [1, 2]}})
    with stage(tmp_path / "out", **PLAN) as staging:
        assert staging.done("data.txt")


def test_a_finished_one_is_not_made_again_and_not_replaced_unasked(tmp_path):
    write(tmp_path / "out")
    assert up_to_date(tmp_path / "out", **PLAN)
    assert not up_to_date(tmp_path / "none", **PLAN)
    with pytest.raises(ArtifactError, match="exists already"):
        write(tmp_path / "out")
    for change, message in [
        ({"config": {**PLAN["config"], "size": 4}}, r"config\.size is 3 there, 4 now"),
        ({"config": {**PLAN["config"], "more": 1}}, r"config\.more is null there, 1 now"),
        ({"inputs": {"corpus": "cd" * 32}}, r"inputs\.corpus is \"abab.*there, \"cdcd.* now"),
        ({"kind": "other"}, r"is (of kind 'test'|test, so it is not replaced); choose another output"),
    ]:
        with pytest.raises(ArtifactError, match=message):
            up_to_date(tmp_path / "out", **{**PLAN, **change})
        with pytest.raises(ArtifactError, match=message):
            write(tmp_path / "out", **change)
    assert open_artifact(tmp_path / "out", "test").results == {"n": 4}
    write(tmp_path / "out", "newer data", config={"size": 4}, overwrite=True)
    assert open_artifact(tmp_path / "out", "test").results == {"n": 10}


def test_the_old_one_stays_until_the_new_one_is_whole(tmp_path):
    write(tmp_path / "out")
    with pytest.raises(Killed), stage(tmp_path / "out", **{**PLAN, "config": {}}, overwrite=True):
        raise Killed
    assert open_artifact(tmp_path / "out", "test", check_content=True).config == PLAN["config"]


def test_two_writers(tmp_path):
    with stage(tmp_path / "out", **PLAN) as staging:
        with (
            pytest.raises(ArtifactError, match="another process is writing it now"),
            stage(tmp_path / "out", **PLAN),
        ):
            pass
        with staging.write("data.txt") as path:
            path.write_text("data")
    assert open_artifact(tmp_path / "out", "test").files("data") == [tmp_path / "out" / "data.txt"]


def test_a_killed_writer_holds_no_lock(tmp_path):
    code = (
        "import os, sys; from recallgap.staging import stage\n"
        f"with stage(sys.argv[1], **{PLAN!r}) as staging:\n"
        "    with staging.write('data.txt') as path: path.write_text('data')\n"
        f"    os.kill(os.getpid(), {int(signal.SIGKILL)})\n"
    )
    died = subprocess.run([sys.executable, "-c", code, str(tmp_path / "out")], check=False)
    assert died.returncode == -signal.SIGKILL
    with stage(tmp_path / "out", **PLAN) as staging:
        assert staging.done("data.txt")


def test_a_full_disk_is_told_and_keeps_what_is_done(tmp_path):
    with (
        pytest.raises(
            ArtifactError, match=r"the disk is full.* 1 finished file\(s\) are kept in .*\.out\.partial"
        ),
        stage(tmp_path / "out", **PLAN) as staging,
    ):
        with staging.write("data.txt") as path:
            path.write_text("data")
        with staging.write("more.txt"):
            raise OSError(errno.ENOSPC, "No space left on device")
    with stage(tmp_path / "out", **PLAN) as staging:
        assert (staging.done("data.txt"), staging.done("more.txt")) == (True, False)
    with pytest.raises(PermissionError), stage(tmp_path / "other", **PLAN):
        raise PermissionError(errno.EACCES, "not ours")


def test_nothing_but_run_json_depends_on_time(tmp_path):
    write(tmp_path / "out")
    run = json.loads((tmp_path / "out" / "run.json").read_text())
    assert set(run) == {"created", "seconds", "versions"}
    assert "numpy" in run["versions"]
    assert run["created"] not in (tmp_path / "out" / "meta.json").read_text()


def test_overwrite_never_replaces_what_is_no_artifact(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("three years of work")
    with (
        pytest.raises(ArtifactError, match="is no artifact, so it is not replaced"),
        stage(tmp_path / "out", kind="thing", config={}, inputs={}, overwrite=True),
    ):
        pass
    assert (tmp_path / "out" / "thesis.txt").exists()


def test_an_empty_folder_may_be_the_output(tmp_path):
    (tmp_path / "out").mkdir()
    with stage(tmp_path / "out", kind="thing", config={}, inputs={}):
        pass
    assert (tmp_path / "out" / "meta.json").is_file()


def test_an_output_below_a_file_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(ArtifactError, match="cannot write there"),
        stage(tmp_path / "file" / "out", kind="thing", config={}, inputs={}),
    ):
        pass


def test_overwrite_never_replaces_an_artifact_of_another_kind(tmp_path):
    write(tmp_path / "out")
    with pytest.raises(ArtifactError, match="what is there is test, so it is not replaced"):
        write(tmp_path / "out", kind="labels", overwrite=True)
    assert open_artifact(tmp_path / "out", "test")


@pytest.mark.parametrize("name", [".", "..", "below/.."])
def test_the_working_directory_is_never_replaced(name, tmp_path, monkeypatch):
    (tmp_path / "here" / "below").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(ArtifactError, match="holds the working directory"):
        write(name, overwrite=True)
    assert (tmp_path / "here" / "below").is_dir()
