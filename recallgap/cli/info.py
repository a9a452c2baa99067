"""recallgap info ARTIFACT: what an artifact is, what it was made from, and whether it is intact."""

import json
from pathlib import Path
from typing import Annotated

import typer

from recallgap.artifact import open_artifact


def info(
    path: Annotated[Path, typer.Argument(help="Folder of any artifact.")],
    check: Annotated[bool, typer.Option("--check", help="Re-hash every file.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole record as JSON.")] = False,
):
    """Show what an artifact is, what it was made from, and how."""
    opened = open_artifact(path, None, check_content=check)
    record = {
        **opened.meta,
        "fingerprint": opened.fingerprint,
        "run": json.loads((path / "run.json").read_text()),
    }
    if as_json:
        print(json.dumps(record, indent=2, sort_keys=True))
        return
    print(f"{record['kind']} {path}  fingerprint {opened.fingerprint[:16]}  made {record['run']['created']}")
    for section in ("config", "inputs", "results"):
        for key, value in sorted(record[section].items()):
            print(f"  {section}.{key}: {json.dumps(value)}")
    total = sum(stored["bytes"] for stored in record["files"].values())
    state = "content checked" if check else "sizes checked"
    print(f"  files: {len(record['files'])}, {total:,} bytes, {state}")
