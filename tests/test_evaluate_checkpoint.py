"""Checkpoints: what is found, how it is identified, what is refused and why."""

import json
import shutil

import models
import numpy as np
import pytest
import torch
import transformers
from models import V, losses_in, random_corpus
from safetensors.torch import load_file, save_file

from recallgap.corpus import write_corpus
from recallgap.corpus.tokenizer import load_tokenizer
from recallgap.errors import CheckpointError, ConfigError
from recallgap.evaluate import Checkpoint, EvaluateConfig, evaluate, files, find_checkpoint, load_checkpoint


@pytest.fixture
def folder(tmp_path):
    """A saved tiny Llama."""
    models.random_model("llama").save_pretrained(tmp_path / "tiny")
    return tmp_path / "tiny"


def test_what_is_known_of_a_loaded_checkpoint(folder):
    found = load_checkpoint(folder)
    assert (found.name, found.vocab_size, found.bos_id, found.eos_id) == ("tiny", V, 1, 2)
    assert (found.dtype, found.max_len, found.tokenizer_fingerprint) == ("float32", models.POSITIONS, None)
    assert load_checkpoint(folder, dtype="bfloat16", name="half").dtype == "bfloat16"
    assert not found.model.training


def test_loading_says_nothing_but_that_there_is_no_tokenizer(folder, capfd):
    capfd.readouterr()
    load_checkpoint(folder)
    out, err = capfd.readouterr()
    assert out == ""
    assert err.count("\n") == 1 and "no tokenizer files" in err


def test_fingerprint_is_that_of_config_and_weights(folder, tmp_path):
    first = find_checkpoint(folder).fingerprint
    copy = shutil.copytree(folder, tmp_path / "copy")
    config = json.loads((copy / "config.json").read_text())
    same = {**config, "transformers_version": "0", "dtype": "bfloat16", "_name_or_path": "elsewhere"}
    (copy / "config.json").write_text(json.dumps(same))
    assert find_checkpoint(copy).fingerprint == first

    (copy / "config.json").write_text(json.dumps({**config, "rms_norm_eps": 1e-3}))
    assert find_checkpoint(copy).fingerprint != first
    (copy / "config.json").write_text(json.dumps(config))
    weights = load_file(copy / "model.safetensors")
    weights["lm_head.weight"][0, 0] += 1
    save_file(weights, copy / "model.safetensors", metadata={"format": "pt"})
    assert find_checkpoint(copy).fingerprint != first


def test_fingerprint_of_a_model_in_memory():
    model = models.random_model("llama")
    first = Checkpoint.of(model, name="a").fingerprint
    assert Checkpoint.of(models.random_model("llama").bfloat16().float(), name="a").fingerprint != first
    assert Checkpoint.of(models.random_model("llama"), name="b").fingerprint == first
    with torch.no_grad():
        model.lm_head.weight[0, 0] += 1
    assert Checkpoint.of(model, name="a").fingerprint != first


def test_sharded_weights(folder, tmp_path):
    models.random_model("llama").save_pretrained(tmp_path / "shards", max_shard_size="10KB")
    assert len(list((tmp_path / "shards").glob("*.safetensors"))) > 1
    whole, parts = (load_checkpoint(path).model.state_dict() for path in (folder, tmp_path / "shards"))
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    next((tmp_path / "shards").glob("*-00002-of-*.safetensors")).unlink()
    with pytest.raises(
        CheckpointError, match=r"index names model-00002-of-\d+.safetensors, which is not there"
    ):
        load_checkpoint(tmp_path / "shards")


def test_a_pythia_checkpoint_brings_its_old_buffers(tmp_path):
    models.random_model("gpt_neox").save_pretrained(tmp_path / "neox")
    weights = load_file(tmp_path / "neox" / "model.safetensors")
    weights["gpt_neox.layers.0.attention.masked_bias"] = torch.tensor(-1e9)
    weights["gpt_neox.layers.0.attention.rotary_emb.inv_freq"] = torch.ones(4)
    save_file(weights, tmp_path / "neox" / "model.safetensors", metadata={"format": "pt"})
    assert load_checkpoint(tmp_path / "neox").vocab_size == V


def without(*names):
    def change(folder):
        for name in names:
            (folder / name).unlink()

    return change


def truncated(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def pickled(folder):
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def other_weights(change):
    def write(folder):
        weights = load_file(folder / "model.safetensors")
        change(weights)
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})

    return write


def other_config(**entries):
    def write(folder):
        path = folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **entries}))

    return write


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (without("config.json"), "no config.json, so it is no Hugging Face model folder"),
        (without("model.safetensors"), "no model.safetensors and no model.safetensors.index.json"),
        (lambda folder: (folder / "config.json").write_text("{"), "config.json is not JSON"),
        (truncated, "SafetensorError.*cut short or damaged"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b""), "SafetensorError"),
        (pickled, r"pickled \(pytorch_model.bin\).*save_pretrained"),
        (other_weights(lambda w: w.pop("model.norm.weight")), "has missing weights: model.norm.weight"),
        (other_weights(lambda w: w.update(extra=torch.ones(1))), "has unexpected weights: extra"),
        (other_config(num_hidden_layers=3), r"has missing weights: model.layers.2.*and \d+ more"),
        (other_config(num_hidden_layers=1), "has unexpected weights: model.layers.1"),
        (other_config(vocab_size=V + 1), "size mismatch|mismatched|ignore_mismatched_sizes"),
        (other_config(is_encoder_decoder=True, model_type="t5"), "t5 is an encoder-decoder"),
        (other_config(model_type="vit"), "ViTConfig"),
        (other_config(model_type="no-such"), "no-such"),
        (
            other_config(
                model_type="own", auto_map={"AutoModelForCausalLM": "own.Own", "AutoConfig": "own.C"}
            ),
            "--trust-remote-code",
        ),
    ],
)
def test_a_folder_that_cannot_be_loaded_whole(folder, damage, message):
    damage(folder)
    with pytest.raises(CheckpointError, match=rf"(?s)loading checkpoint .*tiny.*({message})"):
        load_checkpoint(folder)


@pytest.mark.parametrize("source", ["no/such/folder", "./nothing", "weights.gguf", "/no/model.safetensors"])
def test_a_path_that_is_not_there(source):
    with pytest.raises(CheckpointError, match="no such file or folder"):
        find_checkpoint(source)


def test_a_hub_name_without_network(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(CheckpointError, match=r"hub gave none of that name \(\w+: .*HF_HUB_OFFLINE"):
        find_checkpoint("owner/no-such-model")


def test_a_hub_model_is_loaded_from_its_local_copy(folder, monkeypatch):
    asked = {}

    def snapshot_download(name, **options):
        asked.update(name=name, **options)
        return str(folder)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    found = find_checkpoint("owner/model", revision="step1000")
    assert (found.name, found.revision, found.folder) == ("owner/model", "step1000", folder)
    assert (asked["name"], asked["revision"]) == ("owner/model", "step1000")
    assert found.load(dtype="float32", device="cpu").revision == "step1000"


def test_a_single_safetensors_file_is_no_checkpoint(folder):
    with pytest.raises(CheckpointError, match="give the folder that holds config"):
        find_checkpoint(folder / "model.safetensors")


def test_remote_code_runs_only_when_trusted(folder, tmp_path):
    auto = {"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.OwnModel"}
    other_config(model_type="own_llama", auto_map=auto)(folder)
    (folder / "own.py").write_text(
        "from transformers import LlamaConfig, LlamaForCausalLM\n"
        "class OwnConfig(LlamaConfig):\n    model_type = 'own_llama'\n"
        "class OwnModel(LlamaForCausalLM):\n    config_class = OwnConfig\n"
    )
    with pytest.raises(CheckpointError, match="--trust-remote-code"):
        load_checkpoint(folder)
    assert type(load_checkpoint(folder, trust_remote_code=True).model).__name__ == "OwnModel"
    trusted = find_checkpoint(folder, trust_remote_code=True).fingerprint
    (folder / "own.py").write_text((folder / "own.py").read_text() + "# changed\n")
    assert find_checkpoint(folder, trust_remote_code=True).fingerprint != trusted


def test_another_tokenizer_is_refused(folder, tokenizer_file, tmp_path):
    shutil.copy(tokenizer_file, folder / "tokenizer.json")
    ours = load_tokenizer(folder)
    made_with = {
        name: write_corpus(tmp_path / name, [[1, 2, 3]], vocab_size=V, tokenizer=fingerprint)
        for name, fingerprint in (("same", ours.fingerprint), ("other", "0" * 64), ("unknown", None))
    }
    for name in ("same", "unknown"):
        made = evaluate(folder, made_with[name], tmp_path / f"losses-{name}")
        assert made.inputs["tokenizer"] == ours.fingerprint
    message = f"tokenizer is {ours.fingerprint[:16]}, but the corpus was made with {'0' * 16}"
    with pytest.raises(CheckpointError, match=message):
        evaluate(folder, made_with["other"], tmp_path / "losses-other")


def test_the_tokenizer_says_which_ids_are_special(folder, tokenizer_file):
    shutil.copy(tokenizer_file, folder / "tokenizer.json")
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|endoftext|>"}))
    found = load_checkpoint(folder)
    assert (found.bos_id, found.eos_id) == (1, 0)  # the config's, the tokenizer's


def test_a_gpu_that_is_not_there(folder, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="finds no GPU"):
        load_checkpoint(folder, device="cuda")


def write_gguf(path, model, tokenizer_file):
    """Write a Llama as a .gguf file with float32 tensors, its tokenizer included."""
    import gguf

    config = model.config
    vocab = json.loads(tokenizer_file.read_text())["model"]
    tokens = sorted(vocab["vocab"], key=vocab["vocab"].get)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in vocab["merges"]])
    writer.add_token_types([3] + [1] * (len(tokens) - 1))
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    for name, tensor in model.state_dict().items():
        stem, _, suffix = name.rpartition(".")
        array = tensor.numpy()
        if stem.endswith(("q_proj", "k_proj")):  # GGUF interleaves the two halves of each head
            heads = config.num_attention_heads
            array = array.reshape(heads, 2, -1, array.shape[1]).swapaxes(1, 2).reshape(array.shape)
        writer.add_tensor(f"{names.get_name(stem)}.{suffix}", np.ascontiguousarray(array))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_a_gguf_file(tmp_path, tokenizer_file, capfd):
    pytest.importorskip("gguf")
    pytest.importorskip("accelerate")
    prefix, settings = models.FAMILIES["llama"]
    config = getattr(transformers, f"{prefix}Config")(**{**settings, "vocab_size": 300})
    model = transformers.LlamaForCausalLM(config)
    write_gguf(tmp_path / "tiny.Q4.gguf", model, tokenizer_file)
    capfd.readouterr()
    found = load_checkpoint(tmp_path / "tiny.Q4.gguf", device="cpu")
    assert capfd.readouterr().err == ""
    assert (found.name, found.vocab_size, found.max_len) == ("tiny.Q4", 300, models.POSITIONS)
    assert (found.bos_id, found.eos_id) == (0, 0)
    assert found.tokenizer_fingerprint == load_tokenizer(tokenizer_file).fingerprint

    corpus = random_corpus(tmp_path / "corpus", (30,), vocab_size=300)
    made, wanted = (
        evaluate(which, corpus, tmp_path / name, config=EvaluateConfig(context_len=16))
        for name, which in (("file", found), ("memory", Checkpoint.of(model, name="m")))
    )
    np.testing.assert_allclose(losses_in(made), losses_in(wanted), rtol=0, atol=1e-5)


def test_gguf_needs_its_packages(tmp_path, monkeypatch):
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    monkeypatch.setattr(files.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(CheckpointError, match=r"needs gguf and accelerate: pip install 'recallgap\[gguf\]'"):
        find_checkpoint(tmp_path / "m.gguf")


def test_a_file_that_is_no_gguf(tmp_path):
    (tmp_path / "m.gguf").write_bytes(b"PK\x03\x04")
    with pytest.raises(CheckpointError, match="GGUF file starts with"):
        find_checkpoint(tmp_path / "m.gguf")
