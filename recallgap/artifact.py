"""Artifacts: a folder that is whole or absent, and that says where it came from.

    meta.json   what it is: kind, config, inputs (fingerprints), results, files (bytes, sha256).
                Nothing in it depends on when, where or how often the work was started.
    run.json    how this copy was made: time, seconds, library versions. Never part of the fingerprint.

recallgap.staging writes them; a folder without meta.json was never whole.
"""

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

from recallgap.errors import ArtifactError

FORMAT_VERSION = 1
ALWAYS_CHECKED = 1 << 26
"""Bytes up to which opening an artifact checks its content too: a fraction of a second."""


@dataclass(frozen=True)
class Artifact:
    """A whole artifact folder, opened."""

    path: Path
    meta: dict

    @property
    def fingerprint(self):
        """Hex digest of what the artifact is and was made from; equal for equal work on any machine."""
        return fingerprint_of({k: v for k, v in self.meta.items() if k != "recallgap_version"})

    @property
    def config(self):
        return self.meta["config"]

    @property
    def inputs(self):
        return self.meta["inputs"]

    @property
    def results(self):
        return self.meta["results"]

    def files(self, prefix):
        """Paths of its data files whose names start with `prefix`, in order."""
        return [self.path / name for name in sorted(self.meta["files"]) if name.startswith(prefix)]


class Opened:
    """Base of what a part makes of an artifact: its record at hand, beside the part's own readers."""

    def __init__(self, artifact):
        self.artifact = artifact
        self.path = artifact.path

    @property
    def config(self):
        return self.artifact.config

    @property
    def inputs(self):
        return self.artifact.inputs

    @property
    def results(self):
        return self.artifact.results

    @property
    def fingerprint(self):
        return self.artifact.fingerprint


def fingerprint_of(value):
    """sha256 (hex) of a JSON value in canonical form."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def file_sha256(path):
    """sha256 (hex) of a file's bytes, read in blocks."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def open_artifact(path, kind, *, check_content=False):
    """Open the artifact at `path`; ArtifactError unless it is whole and of `kind` (None: any).

    `check_content` re-hashes every file; without it that is done for small artifacts, and for larger ones
    presence and sizes are checked.
    """
    path = Path(path)
    doing = f"opening {kind or 'artifact'} {path}"
    if not path.is_dir():
        near = staging_path(path)
        hint = (
            f" An unfinished one is at {near}: run the command that makes it again." if near.is_dir() else ""
        )
        raise ArtifactError(f"{doing}: there is no such folder.{hint}")
    try:
        meta = json.loads((path / "meta.json").read_text())
    except FileNotFoundError:
        raise ArtifactError(f"{doing}: it has no meta.json, so it is no finished artifact") from None
    except json.JSONDecodeError as error:
        raise ArtifactError(f"{doing}: meta.json is not JSON ({error}); make the artifact again") from None
    if not (isinstance(meta, dict) and isinstance(meta.get("files"), dict)):
        raise ArtifactError(f"{doing}: meta.json is not the record of an artifact; make the artifact again")
    if kind is not None and meta.get("kind") != kind:
        raise ArtifactError(f"{doing}: it is of kind '{meta.get('kind')}', but '{kind}' is needed here")
    if meta.get("format_version") != FORMAT_VERSION:
        found = meta.get("format_version")
        raise ArtifactError(f"{doing}: format version {found}, but this recallgap reads {FORMAT_VERSION}")
    n_bytes = sum(stored["bytes"] for stored in meta["files"].values())
    for name, stored in meta["files"].items():
        _check_file(doing, path / name, stored, check_content or n_bytes <= ALWAYS_CHECKED)
    return Artifact(path, meta)


def _check_file(doing, path, stored, check_content):
    if path.is_symlink() and not path.exists():
        raise ArtifactError(
            f"{doing}: its file {path.name} is a link to {path.readlink()}, which is not there; put that "
            "file back, or import it again from where it is now"
        )
    if not path.is_file():
        raise ArtifactError(f"{doing}: its file {path.name} is missing; make the artifact again")
    size = path.stat().st_size
    if size != stored["bytes"]:
        raise ArtifactError(f"{doing}: {path.name} has {size} bytes, but {stored['bytes']} were written")
    if check_content and file_sha256(path) != stored["sha256"]:
        raise ArtifactError(f"{doing}: the content of {path.name} has changed since it was written")


def staging_path(target):
    """Where an artifact lies while it is unfinished."""
    target = Path(os.path.abspath(target))  # "." and "a/.." have neither name nor parent  # noqa: PTH100
    return target.parent / f".{target.name}.partial"
