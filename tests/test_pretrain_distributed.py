"""Two processes under torchrun take the steps of one: DDP and FSDP, weights and evaluations."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from recallgap.artifact import open_artifact
from recallgap.pretrain import RunOptions, TrainedCheckpoint
from tests.pretrain_cases import corpora
from tests.pretrain_worker import distributed_run

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def one_process(tmp_path_factory):
    folder = tmp_path_factory.mktemp("distributed")
    distributed_run(folder, "single", RunOptions(device="cpu", device_batch_size=8))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_two_processes_equal_one(one_process, kind):
    folder = one_process
    corpora(folder)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command = [*launch, "-m", "tests.pretrain_worker", str(folder), kind]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    single, double = (load_file(folder / name / "model.safetensors") for name in ("single", kind))
    assert single.keys() == double.keys()
    for name, weight in single.items():
        torch.testing.assert_close(double[name], weight, atol=1e-6, rtol=1e-6)
    logs = [TrainedCheckpoint(open_artifact(folder / name, "checkpoint")).log() for name in ("single", kind)]
    evaluations = [[entry["slices"] for entry in log if entry["event"] == "evaluation"] for log in logs]
    assert len(evaluations[0]) == len(evaluations[1]) == 3
    for one, two in zip(*evaluations, strict=True):
        for name, found in one.items():
            assert two[name]["n"] == found["n"]
            assert two[name]["loss_sum"] == pytest.approx(found["loss_sum"], rel=1e-5)
