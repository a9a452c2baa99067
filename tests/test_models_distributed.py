"""Two processes (gloo) give the gradient of one, for every mixer in every variant."""

import json

import pytest
import torch
from mixer_cases import CASES
from test_models_lm import build, random_ids, shaken
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from recallgap.models.mixers import MIXERS

N_PROCESSES, ROWS = 2, 4
CLOSE = 1e-6
"""Of the largest entry of a gradient; float64, so what is left is a fault."""
LAYERS = {
    f"{name}-{i}": {"mixer": name, **options} for name in MIXERS for i, options in enumerate(CASES[name])
}
LAYERS["auxiliary_loss"] = {
    "mixer": "selective_attention",
    "n_heads": 2,
    "selection": "learned",
    "k": 1,
    "noise": 0.0,
}


def build_deterministic(layer):
    """The model in training mode, or in evaluation where training draws numbers, as processes draw apart."""
    model = shaken(build([layer])).double().train()
    ids_BT = random_ids()
    if not torch.equal(model(ids_BT).logits, model(ids_BT).logits):
        model.eval()
    return model


def gradients(model, ids_BT):
    model(ids_BT, labels=ids_BT).loss.backward()
    return {name.removeprefix("module."): p.grad for name, p in model.named_parameters()}


def largest_difference(found, expected):
    return max(
        float((found[name] - g).abs().max() / g.abs().max().clamp(min=1e-30)) for name, g in expected.items()
    )


def compare(rank, folder):
    """In each process: half the batch under DDP. Process 0 writes how far that is from the whole batch."""
    torch.set_num_threads(1)
    address = {"init_method": f"file://{folder}/meeting", "rank": rank, "world_size": N_PROCESSES}
    distributed.init_process_group("gloo", **address)
    ids_BT = random_ids(B=ROWS)
    mine_BT = ids_BT.chunk(N_PROCESSES)[rank]
    differences = {}
    for name, layer in LAYERS.items():
        together = gradients(DistributedDataParallel(build_deterministic(layer)), mine_BT)
        alone = gradients(build_deterministic(layer), mine_BT)
        whole = gradients(build_deterministic(layer), ids_BT)
        differences[name] = {
            "together": largest_difference(together, whole),
            "half": largest_difference(alone, whole),
        }
    if rank == 0:
        with open(f"{folder}/differences.json", "w") as file:
            json.dump(differences, file)
    distributed.destroy_process_group()


@pytest.fixture(scope="module")
def differences(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gloo")
    torch.multiprocessing.spawn(compare, args=(folder,), nprocs=N_PROCESSES)
    return json.loads((folder / "differences.json").read_text())


@pytest.mark.parametrize("name", LAYERS)
def test_two_processes_give_the_gradient_of_one(name, differences):
    assert differences[name]["together"] < CLOSE
    assert differences[name]["half"] > 1e-3, "half the batch gives the same gradient: nothing is tested"
