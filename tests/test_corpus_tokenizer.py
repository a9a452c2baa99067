"""One tokenizer, whatever form it comes in: equal ids, equal fingerprint."""

import importlib.util
import json
import shutil

import pytest
import tokenizers

from recallgap.corpus import load_tokenizer
from recallgap.errors import CheckpointError, ConfigError

TEXTS = ["the quick brown fox", "", "na\u00efve \U0001f600\x00\r\n", "a<|endoftext|>b"]


def write_folder(folder, state, **settings):
    folder.mkdir()
    (folder / "tokenizer.json").write_text(json.dumps(state))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def write_pair(folder, state, vocab="encoder.json", merges="vocab.bpe"):
    folder.mkdir()
    (folder / vocab).write_text(json.dumps(state["model"]["vocab"]))
    lines = ["#version: 0.2", *(" ".join(pair) for pair in state["model"]["merges"])]
    (folder / merges).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def write_gguf(path, state):
    gguf = pytest.importorskip("gguf")
    vocab, special = state["model"]["vocab"], {added["content"] for added in state["added_tokens"]}
    tokens = sorted(vocab, key=vocab.get)
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in special else 1 for token in tokens])
    writer.add_token_merges([" ".join(pair) for pair in state["model"]["merges"]])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    for add in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file):
        add()
    writer.close()
    return path


@pytest.fixture
def state(tokenizer_file):
    return json.loads(tokenizer_file.read_text())


@pytest.mark.parametrize("form", ["folder", "pair", "merges.txt", "gguf", "no tokenizer.json"])
def test_every_form_of_a_tokenizer_is_the_same_tokenizer(form, state, tokenizer_file, tmp_path):
    path = tmp_path / "form"
    if form == "folder":
        write_folder(path, state, eos_token="<|endoftext|>")
    elif form == "pair":
        write_pair(path, state)
    elif form == "merges.txt":
        write_pair(path, state, "vocab.json", "merges.txt")
    elif form == "gguf":
        path = write_gguf(tmp_path / "form.gguf", state)
    else:
        write_pair(path, state, "vocab.json", "merges.txt")
        (path / "tokenizer_config.json").write_text('{"tokenizer_class": "GPT2Tokenizer"}')
    one, other = load_tokenizer(tokenizer_file), load_tokenizer(path)
    assert other.fingerprint == one.fingerprint
    assert (other.vocab_size, other.eos_id) == (one.vocab_size, 0)
    for a, b in zip(one.encode_batch(TEXTS), other.encode_batch(TEXTS), strict=True):
        assert a.tolist() == b.tolist()


def test_encoding_round_trips_and_adds_nothing(state, tokenizer_file, tmp_path):
    """A template around each text is not applied; nothing is cut, padded or left to chance."""
    plain = load_tokenizer(tokenizer_file)
    backend = tokenizers.Tokenizer.from_file(str(tokenizer_file))
    backend.post_processor = tokenizers.processors.TemplateProcessing(
        single="<|endoftext|> $A <|endoftext|>", special_tokens=[("<|endoftext|>", 0)]
    )
    backend.model.dropout = 0.9
    backend.enable_truncation(2)
    backend.enable_padding(length=9)
    backend.save(str(tmp_path / "dressed.json"))
    dressed = load_tokenizer(tmp_path / "dressed.json")
    assert dressed.fingerprint == plain.fingerprint
    assert backend.encode(TEXTS[0]).ids != plain.encode_batch(TEXTS)[0].tolist()
    for text, ids, same in zip(TEXTS, plain.encode_batch(TEXTS), dressed.encode_batch(TEXTS), strict=True):
        assert ids.tolist() == same.tolist()
        assert plain.decode(ids) == text
    assert 0 in plain.encode_batch(TEXTS)[3], "a special token that the text spells is recognized"


def test_the_fingerprint_sees_vocabulary_and_merges(state, tmp_path):
    def fingerprint(name):
        (tmp_path / name).write_text(json.dumps(state))
        return load_tokenizer(tmp_path / name).fingerprint

    seen = {fingerprint("as it is")}
    merges = state["model"]["merges"]
    merges[3], merges[4] = merges[4], merges[3]
    seen.add(fingerprint("merges swapped"))
    vocab = state["model"]["vocab"]
    vocab["q"], vocab["z"] = vocab["z"], vocab["q"]
    seen.add(fingerprint("ids swapped"))
    state["added_tokens"].append({**state["added_tokens"][0], "id": len(vocab), "content": "<new>"})
    seen.add(fingerprint("token added"))
    assert len(seen) == 4


@pytest.mark.parametrize(
    ("settings", "bos_id", "eos_id"),
    [
        ({"bos_token": "q", "eos_token": {"content": "z", "lstrip": False}}, "q", "z"),
        ({"bos_token": None, "eos_token": "z"}, None, "z"),
        ({}, None, "<|endoftext|>"),
    ],
)
def test_special_tokens_come_from_the_settings_beside(settings, bos_id, eos_id, state, tmp_path):
    tokenizer = load_tokenizer(write_folder(tmp_path / "form", state, **settings))
    vocab = state["model"]["vocab"]
    assert (tokenizer.bos_id, tokenizer.eos_id) == (vocab.get(bos_id), vocab[eos_id])
    assert load_tokenizer(tmp_path / "form" / "tokenizer.json").eos_id == vocab[eos_id]


def test_special_tokens_from_a_model_config_and_none_at_all(state, tmp_path):
    folder = write_folder(tmp_path / "form", state)
    (folder / "config.json").write_text('{"bos_token_id": 3, "eos_token_id": [5, 6]}')
    tokenizer = load_tokenizer(folder)
    assert (tokenizer.bos_id, tokenizer.eos_id) == (3, 5)
    state["added_tokens"] = []
    (tmp_path / "bare.json").write_text(json.dumps(state))
    tokenizer = load_tokenizer(tmp_path / "bare.json")
    assert (tokenizer.bos_id, tokenizer.eos_id) == (None, None)


def test_vocab_size_covers_added_tokens_with_a_hole(state, tmp_path):
    state["added_tokens"].append({**state["added_tokens"][0], "id": 296, "content": "<last>"})
    (tmp_path / "a.json").write_text(json.dumps(state))
    assert load_tokenizer(tmp_path / "a.json").vocab_size == 297


def test_a_token_that_is_not_there_names_the_nearest(tokenizer_file):
    tokenizer = load_tokenizer(tokenizer_file)
    assert tokenizer.token_id("<|endoftext|>") == 0
    with pytest.raises(ConfigError, match=r"no token '<\|endoftxt\|>'\. Did you mean '<\|endoftext\|>'\?"):
        tokenizer.token_id("<|endoftxt|>")


def test_what_is_no_tokenizer(state, tmp_path, monkeypatch):
    with pytest.raises(CheckpointError, match=r"none\.json: there is no such file"):
        load_tokenizer(tmp_path / "none.json")
    (tmp_path / "a.json").write_text('{"model": 1}')
    with pytest.raises(CheckpointError, match=r"a\.json: it is not a tokenizer\.json"):
        load_tokenizer(tmp_path / "a.json")
    broken = write_folder(tmp_path / "broken", state)
    (broken / "tokenizer_config.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"broken: tokenizer_config\.json is not JSON"):
        load_tokenizer(broken)
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        CheckpointError, match=r"no tokenizer\.json and no encoder\.json \+ vocab\.bpe or vocab"
    ):
        load_tokenizer(tmp_path / "empty")
    write_pair(tmp_path / "pair", state)
    (tmp_path / "pair" / "vocab.bpe").write_text("#version: 0.2\nxx yy\n")
    with pytest.raises(CheckpointError, match=r"encoder\.json and vocab\.bpe: "):
        load_tokenizer(tmp_path / "pair")
    (tmp_path / "a.gguf").write_bytes(b"GGUF no")
    with pytest.raises(CheckpointError, match=r"a\.gguf: transformers cannot read it"):
        load_tokenizer(tmp_path / "a.gguf")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(CheckpointError, match=r"needs the package gguf: pip install 'recallgap\[gguf\]'"):
        load_tokenizer(tmp_path / "a.gguf")


def test_a_hub_name_goes_to_transformers(state, tmp_path, monkeypatch):
    import transformers

    folder = write_folder(tmp_path / "kept", state, eos_token="z", tokenizer_class="PreTrainedTokenizerFast")
    real = transformers.AutoTokenizer.from_pretrained
    monkeypatch.setattr(
        transformers.AutoTokenizer,
        "from_pretrained",
        lambda name: real(folder) if name == "some/one" else None,
    )
    tokenizer = load_tokenizer("some/one")
    assert (tokenizer.name, tokenizer.eos_id) == ("some/one", state["model"]["vocab"]["z"])
    shutil.rmtree(folder)
    with pytest.raises(CheckpointError, match="some/one: transformers cannot read it"):
        load_tokenizer("some/one")
