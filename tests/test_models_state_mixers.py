"""State mixers against their equations, transformers' MLPs and their initialisation."""

import pytest
import torch
from attention_cases import EXACT, assert_normal, assert_same
from mixer_cases import build_mixer, random_input, run, shaken
from transformers import GPT2Config, LlamaConfig
from transformers.models.gpt2.modeling_gpt2 import GPT2MLP
from transformers.models.llama.modeling_llama import LlamaMLP

from recallgap.errors import ConfigError


def copied(ours, theirs, names):
    """`theirs` with our weights; names: ours -> theirs, where "T" marks a transposed one."""
    for name, other in names.items():
        weight = ours.get_parameter(name)
        theirs.get_parameter(other.removeprefix("T ")).data.copy_(
            weight.T if other.startswith("T ") else weight
        )
    return theirs


def test_swiglu_is_llamas():
    mixer = shaken(build_mixer("swiglu", {"d_inner": 24}))
    names = {
        f"{name}.weight": f"{theirs}_proj.weight"
        for name, theirs in (("gate", "gate"), ("inner", "up"), ("out", "down"))
    }
    config = LlamaConfig(hidden_size=16, intermediate_size=24, num_attention_heads=2)
    llama = copied(mixer, LlamaMLP(config).double(), names)
    x_BTD, context = random_input()
    torch.testing.assert_close(run(mixer, x_BTD, context), llama(x_BTD), atol=EXACT, rtol=EXACT)


def test_mlp_is_gpt_2s():
    mixer = shaken(build_mixer("mlp", {"expand": 3}))
    names = {
        "inner.weight": "T c_fc.weight",
        "out.weight": "T c_proj.weight",
        "inner.bias": "c_fc.bias",
        "out.bias": "c_proj.bias",
    }
    gpt_2 = copied(mixer, GPT2MLP(48, GPT2Config(n_embd=16, resid_pdrop=0.0)).double(), names)
    x_BTD, context = random_input()
    torch.testing.assert_close(run(mixer, x_BTD, context), gpt_2(x_BTD), atol=EXACT, rtol=EXACT)


def test_rwkv_channel_mix_equals_its_equation():
    mixer = shaken(build_mixer("rwkv_channel_mix", {"expand": 2}))
    x_BTD, context = random_input(T=9)
    x_BTD.requires_grad_()

    def slow():
        columns = []
        for t in range(9):
            previous_BD = x_BTD[:, t - 1] if t else torch.zeros_like(x_BTD[:, 0])
            x_key, x_receptance = (
                m_D * x_BTD[:, t] + (1 - m_D) * previous_BD for m_D in (mixer.mix_key, mixer.mix_receptance)
            )
            value = (x_key @ mixer.key.weight.T).clamp(min=0) ** 2 @ mixer.value.weight.T
            columns.append(value / (1 + torch.exp(-x_receptance @ mixer.receptance.weight.T)))
        return torch.stack(columns, 1)

    assert_same(mixer, x_BTD, lambda: run(mixer, x_BTD, context), slow)


@pytest.mark.parametrize(("name", "share"), [("identity", 0.0), ("echo", 1.0)])
def test_mixers_without_weights_give_nothing_or_their_input(name, share):
    x_BTD, context = random_input()
    assert torch.equal(build_mixer(name, {})(x_BTD, context), share * x_BTD)


@pytest.mark.parametrize("name", ["swiglu", "mlp"])
def test_mlps_begin_as_gpt_2s(name):
    """Section 2.3: N(0, 0.02), divided by sqrt(2 layers) into the residual stream; no bias but 0."""
    mixer = build_mixer(name, {}, d_model=128, n_layers=8)
    for key, p in mixer.named_parameters():
        if key.endswith("bias"):
            assert (p == 0).all()
        else:
            assert_normal(p, 0.02 / 4 if key == "out.weight" else 0.02)


@pytest.mark.parametrize("expand", [1, 4])
def test_rwkv_channel_mix_begins_as_rwkv_v4(expand):
    """RWKV-v4/src/model.py: a key orthogonal with gain sqrt(rows / columns), zeros, and a ramp of mixes."""
    mixer = build_mixer("rwkv_channel_mix", {"expand": expand}, layer=1, n_layers=4)
    key = mixer.key.weight
    torch.testing.assert_close(key.T @ key, expand * torch.eye(16, dtype=torch.float64), atol=1e-6, rtol=0)
    assert (mixer.value.weight == 0).all()
    assert (mixer.receptance.weight == 0).all()
    expected_D = torch.tensor([(i / 16) ** 0.75 for i in range(16)], dtype=torch.float64)
    for mix_D in (mixer.mix_key, mixer.mix_receptance):
        torch.testing.assert_close(mix_D.detach(), expected_D)


def test_swiglu_is_as_large_as_a_plain_mlp_by_default():
    assert build_mixer("swiglu", {}, d_model=768).gate.weight.shape == (2048, 768)
    assert build_mixer("swiglu", {}, d_model=1024).gate.weight.shape == (2736, 1024)


@pytest.mark.parametrize(
    ("name", "options", "text"),
    [
        ("swiglu", {"d_inner": 0}, "swiglu: d_inner is 0, but a width from 1"),
        ("mlp", {"expand": 0}, "mlp: expand is 0, but an inner width"),
        ("rwkv_channel_mix", {"expand": 0}, "rwkv_channel_mix: expand is 0, but an inner width"),
    ],
)
def test_options_that_cannot_be_are_refused(name, options, text):
    with pytest.raises(ConfigError, match=text):
        build_mixer(name, options)
