"""Writing an artifact whole or not at all, and continuing it after a kill.

The work happens in a sibling folder `.NAME.partial` that holds plan.json (kind, config, inputs) and the files
finished so far; at the end meta.json is written and one rename puts the folder in its place. The same command
continues the folder of an interrupted one; another plan never touches it.
"""

import contextlib
import errno
import fcntl
import importlib.metadata
import json
import os
import shutil
import time
from pathlib import Path

from recallgap import __version__
from recallgap.artifact import FORMAT_VERSION, file_sha256, open_artifact, staging_path
from recallgap.errors import ArtifactError
from recallgap.progress import note

VERSIONED_PACKAGES = ("numpy", "numba", "pyarrow", "tokenizers", "transformers", "torch")
OWN_FILES = ("meta.json", "run.json", "plan.json", ".lock")
FULL = (errno.ENOSPC, errno.EDQUOT)
"""What the system says of a full disk."""
SCRATCH = "scratch"
"""Folder in a staging folder for what a long job needs to continue; it is not part of the artifact."""


def up_to_date(target, *, kind, config, inputs):
    """True when `target` is a whole artifact made by exactly this plan, so that nothing needs to run.

    ArtifactError when something else is there: nothing is replaced unless asked.
    """
    target = Path(target)
    if not _occupied(target):
        return False
    found = open_artifact(target, None).meta
    _refuse_other_plan(f"writing {kind} {target}", "the folder there", found, _plan(kind, config, inputs))
    return True


def _plan(kind, config, inputs):
    plan = {"kind": kind, "format_version": FORMAT_VERSION, "config": config, "inputs": inputs}
    return json.loads(json.dumps(plan))


def _refuse_other_plan(doing, where, found, wanted):
    if found.get("kind") != wanted["kind"]:
        raise ArtifactError(f"{doing}: {where} is of kind '{found.get('kind')}'; choose another output")
    differences = [
        f"{key} is {_brief(old)} there, {_brief(new)} now"
        for section in wanted
        for key, old, new in _differences(section, found.get(section), wanted[section])
    ]
    if differences:
        raise ArtifactError(
            f"{doing}: {where} was made with other settings: {'; '.join(differences)}. "
            "Choose another output, or replace it with --overwrite"
        )


def _differences(name, old, new):
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            yield from _differences(f"{name}.{key}", old.get(key), new.get(key))
    elif old != new:
        yield name, old, new


def _brief(value):
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:18]}...{text[-6:]}"


class Staging:
    """An artifact in the making. Set `results` before leaving; write every file through `write`.

    run: what run.json tells besides time and versions.
    """

    def __init__(self, path):
        self.path = path
        self.results, self.run = {}, {}

    @property
    def scratch(self):
        """A folder for what a long job needs to continue."""
        (self.path / SCRATCH).mkdir(exist_ok=True)
        return self.path / SCRATCH

    def done(self, name):
        """True when file `name` was finished, by this or an earlier, interrupted run."""
        return (self.path / name).exists()

    @contextlib.contextmanager
    def write(self, name):
        """A path to write to; the file takes its name, synced to disk, only when the block ends well."""
        half = self.path / f"{name}.half"
        yield half
        sync(half)
        os.rename(half, self.path / name)


@contextlib.contextmanager
def stage(target, *, kind, config, inputs, overwrite=False):
    """Write an artifact whole or not at all; continue an interrupted one made by the same plan.

    config: JSON values that determine the result. inputs: {name: fingerprint}. Yields a `Staging`; when the
    block ends well, the folder takes its place. After an error or a kill the finished files stay.
    """
    target, started = Path(target), time.time()
    plan, doing = _plan(kind, config, inputs), f"writing {kind} {target}"
    folder = staging_path(target)
    refuse_output(target, kind)
    if _occupied(target) and not overwrite:
        up_to_date(target, kind=kind, config=config, inputs=inputs)
        raise ArtifactError(f"{doing}: it exists already")
    try:
        with _lock_file(folder, doing) as lock:
            _take_lock(lock, doing)
            _open_plan(folder, plan, doing, overwrite)
            staging = Staging(folder)
            yield staging
            _finish(staging, target, plan, started)
    except KeyboardInterrupt:
        note(f"{doing}: interrupted; what was finished is kept, and the same command goes on")
        raise
    except OSError as error:
        if error.errno not in FULL:
            raise
        kept = len(_finished_files(folder))
        raise ArtifactError(
            f"{doing}: the disk is full ({error}). {kept} finished file(s) are kept in {folder}: "
            "free some space and run the same command again"
        ) from error


def refuse_output(target, kind):
    """ArtifactError where nothing of this kind could be written at `target`: told before any work is done."""
    target, doing = Path(target), f"writing {kind} {target}"
    if Path.cwd().is_relative_to(target.resolve()):
        raise ArtifactError(f"{doing}: that folder holds the working directory; name a new folder")
    for parent in target.absolute().parents:
        if (parent / "meta.json").is_file():
            raise ArtifactError(
                f"{doing}: it lies inside {parent}, which is a {_kind_of(parent) or 'finished folder'}; "
                "choose an output outside of it"
            )
    if _occupied(target) and _kind_of(target) != kind:
        found = _kind_of(target) or "no artifact"
        raise ArtifactError(
            f"{doing}: what is there is {found}, so it is not replaced; choose another output"
        )


def _occupied(target):
    """True where something is at `target` that a new artifact would replace; an empty folder is nothing."""
    return target.exists() and not (target.is_dir() and not any(target.iterdir()))


def _kind_of(target):
    """Kind of the artifact at `target`, whole or damaged; None where there is none."""
    try:
        return json.loads((target / "meta.json").read_text())["kind"]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _lock_file(folder, doing):
    """The open lock file of a staging folder, which is made where it is not there yet."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return open(folder / ".lock", "w")
    except OSError as error:
        if error.errno in FULL:
            raise
        raise ArtifactError(f"{doing}: cannot write there ({error}); choose another output") from None


def _take_lock(lock, doing):
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ArtifactError(
            f"{doing}: another process is writing it now; wait or choose another output"
        ) from None


def _open_plan(folder, plan, doing, overwrite):
    """Continue the staging folder if it has this plan, else start it; never lose another plan's files."""
    found = _found_plan(folder, plan)
    begun = _finished_files(folder) or any(folder.glob(f"{SCRATCH}/*"))
    if found != plan and begun:
        if not overwrite:
            _refuse_other_plan(doing, f"an unfinished one in {folder}", found, plan)
        for name in _finished_files(folder):
            (folder / name).unlink()
        shutil.rmtree(folder / SCRATCH, ignore_errors=True)
    for half in folder.glob("*.half"):
        half.unlink()
    with Staging(folder).write("plan.json") as path:
        path.write_text(_pretty(plan))


def _found_plan(folder, plan):
    """The plan of what lies in the staging folder; a run killed before its rename left it in meta.json."""
    for name in ("plan.json", "meta.json"):
        if (folder / name).exists():
            found = json.loads((folder / name).read_text())
            return {key: found.get(key) for key in plan}
    return {}


def _finished_files(folder):
    names = (path.name for path in folder.iterdir() if path.is_file() and path.suffix != ".half")
    return sorted(name for name in names if name not in OWN_FILES)


def _finish(staging, target, plan, started):
    folder = staging.path
    sizes = {name: (folder / name).stat().st_size for name in _finished_files(folder)}
    files = {name: {"bytes": size, "sha256": file_sha256(folder / name)} for name, size in sizes.items()}
    with staging.write("run.json") as path:
        path.write_text(_pretty({**_run_record(started), **staging.run}))
    with staging.write("meta.json") as path:
        made = {"recallgap_version": __version__, "results": staging.results, "files": files}
        path.write_text(_pretty({**plan, **made}))
    (folder / "plan.json").unlink()
    (folder / ".lock").unlink()
    shutil.rmtree(folder / SCRATCH, ignore_errors=True)
    sync(folder)
    if target.exists():
        shutil.rmtree(target)
    os.rename(folder, target)
    sync(target.parent)


def _run_record(started):
    versions = {}
    for package in VERSIONED_PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started))
    return {"created": created, "seconds": round(time.time() - started, 3), "versions": versions}


def _pretty(value):
    return json.dumps(value, indent=2, sort_keys=True) + "\n"


def sync(path):
    """What was written to a file, or the names in a folder, are on the disk afterwards."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
