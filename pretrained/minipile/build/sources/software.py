"""Python code and technical documentation."""

import gzip
import re

from cleaning import files, number, read

CODE_PACKAGES = ("networkx", "scipy", "sympy", "transformers")


def code(unpacked):
    """(group, text) of the Python files that people wrote."""
    for package in CODE_PACKAGES:
        folder = unpacked / package
        for path in files(folder, "*/**/*.py"):
            if 1500 <= path.stat().st_size <= 200_000:
                text = read(path)
                if written_by_people(text):
                    yield str(path.relative_to(folder)), text


def written_by_people(text):
    """False for generated copies (many of Transformers' modeling_*.py) and for tables of numbers."""
    head = text[:600]
    generated = "automatically generated" in head or "generated automatically" in head.lower()
    return not generated and len(re.findall(r"\d", text)) <= 0.2 * len(text)


def technical_documents(unpacked):
    """(group, text) of the documentation of Linux and of Python."""
    folder = unpacked / "linux-doc-6.1/usr/share/doc/linux-doc-6.1/Documentation"
    for path in files(folder):
        name = str(path.relative_to(folder))
        if wanted_of_linux(name, str(path)):
            opened = gzip.open if path.suffix == ".gz" else open
            with opened(path, "rt", encoding="utf-8", errors="replace") as stream:
                yield f"linux:{name}", stream.read()
    folder = unpacked / "python3.11-doc/usr/share/doc/python3.11/html/_sources"
    for path in files(folder, "*.rst.txt"):
        yield f"python:{path.relative_to(folder)}", read(path)


def wanted_of_linux(name, path):
    """Text in English, and only half of the 4,000 device-tree bindings (YAML), which are much alike."""
    if "/translations/" in path or not re.search(r"\.(rst|txt|yaml)(\.gz)?$|ABI/", name):
        return False
    return not (name.endswith((".yaml.gz", ".yaml")) and number(name) % 2)
