"""An installed wheel carries what `recallgap demo` needs: no clone, no network."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from recallgap.demo import SHIPPED_MODELS

ROOT = Path(__file__).parents[1]
LARGEST_WHEEL = 60e6


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    done = subprocess.run(
        [*command, "--wheel-dir", str(folder), str(ROOT)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return next(folder.glob("recallgap-*.whl"))


@pytest.mark.slow
def test_the_wheel_is_small_and_holds_checkpoints_text_and_counts(wheel):
    assert wheel.stat().st_size < LARGEST_WHEEL
    names = zipfile.ZipFile(wheel).namelist()
    for model in SHIPPED_MODELS:
        for file in ("model.safetensors", "config.json", "tokenizer.json", "README.md"):
            assert f"recallgap/shipped/{model}/{file}" in names
    assert {f"recallgap/shipped/minipile/{file}" for file in ("valid.jsonl.zst", "NOTICE.md")} <= set(names)
    assert "recallgap/shipped/minipile/counts/meta.json" in names
    assert not [name for name in names if name.startswith(("tests/", "pretrained/", "benchmarks/"))]


@pytest.mark.slow
def test_the_demo_runs_from_the_wheel(wheel, tmp_path):
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    environment = {**os.environ, "PYTHONPATH": str(site), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", "recallgap.cli.main", "demo", "--out", "out"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    for part in (*SHIPPED_MODELS, "nats on an AR hit", "Gap due to AR hits"):
        assert part in done.stdout
    report = tmp_path / "out" / "shipped" / "report"
    assert {"report.html", "train-count.png", "hit-distance.png"} <= {path.name for path in report.iterdir()}
    rows = json.loads((report / "table.json").read_text())
    assert [row["model"] for row in rows] == list(SHIPPED_MODELS)
