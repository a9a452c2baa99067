"""docs/the-pile.md: every recallgap command of the page runs, in its order, on small stand-ins."""

import json
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from pile import serve, write_pile
from token_files import write_megatron
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM
from typer.testing import CliRunner

from recallgap.artifact import open_artifact
from recallgap.cli import main
from recallgap.corpus import load_tokenizer
from recallgap.models.recipes import RECIPES

PAGE = (Path(__file__).parents[1] / "docs" / "the-pile.md").read_text()
RUNNER = CliRunner()
CONTEXT = 64
ROW = 2049
IN_SMALL = {"2048": str(CONTEXT), "50256": "0", "tokens=10000000000": "tokens=512"}
"""Arguments of the page, and what stands for them here."""
SMALL_RUN = shlex.split(
    f"--set context_len={CONTEXT} --set batch_size=4 --set evaluations=1 --set eval_tokens=256 --device cpu"
)


def commands(section):
    """The commands of a section of the page, as lists of words."""
    text = {part.splitlines()[0]: part for part in re.split(r"^## ", PAGE, flags=re.MULTILINE)}
    (found,) = (part for title, part in text.items() if title.startswith(section))
    blocks = re.findall(r"^```\n(.*?)^```$", found, flags=re.MULTILINE | re.DOTALL)
    return [shlex.split(line) for block in blocks for line in block.splitlines()]


@pytest.fixture
def place(tokenizer_file, tmp_path, monkeypatch):
    """A working directory with what the page names: hub, tokenizers, a Pythia model, token files."""
    monkeypatch.chdir(tmp_path)
    for name in ("gpt2", "EleutherAI/gpt-neox-20b", "EleutherAI/pythia-160m"):
        (tmp_path / name).mkdir(parents=True)
        shutil.copy(tokenizer_file, tmp_path / name / "tokenizer.json")
    vocab_size = load_tokenizer(tokenizer_file).vocab_size
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    torch.manual_seed(0)
    model = GPTNeoXForCausalLM(GPTNeoXConfig(vocab_size=vocab_size, **shape))
    model.save_pretrained(tmp_path / "EleutherAI" / "pythia-160m")
    serve(monkeypatch, write_pile(tmp_path / "hub"))
    for family in ("attention", "base-conv"):
        monkeypatch.setitem(RECIPES, f"{family}-125m", RECIPES[f"{family}-3m"])
    monkeypatch.setitem(IN_SMALL, "vocab_size=50257", f"vocab_size={vocab_size}")
    random = np.random.default_rng(0)
    (tmp_path / "pile").mkdir()
    for name, n in (("pile_text_document", 200), ("pile_valid_text_document", 40)):
        documents = [[[*random.integers(1, 60, random.integers(5, 90)).tolist(), 0]] for _ in range(n)]
        write_megatron(tmp_path / "pile" / name, documents)
    return tmp_path


def download(arguments, place):
    """What `hf download` would have fetched."""
    target = place / arguments[arguments.index("--local-dir") + 1]
    if arguments[0].endswith("pile-uncopyrighted"):
        shutil.copytree(place / "hub", target, dirs_exist_ok=True)
        return
    assert arguments[0] == "EleutherAI/pile-standard-pythia-preshuffled"
    raw = np.random.default_rng(0).integers(0, 60, 6 * ROW).astype("<u2").tobytes()
    target.mkdir()
    for number in range(4):
        name = f"document-{number:05d}-of-00003.bin"
        (target / name).write_bytes(raw[number * 7000 : (number + 1) * 7000])


def run(command, place):
    """Run one command of the page as a shell would; recallgap's in this process."""
    program, *arguments = command
    if program == "hf":
        assert arguments[0] == "download"
        return download(arguments[1:], place)
    assert program == "recallgap", f"the page has a command that this test does not know: {command}"
    words = []
    for word in arguments:
        found = sorted(str(path.relative_to(place)) for path in place.glob(word)) if "*" in word else [word]
        assert found, f"{word} matches no file"
        words += [IN_SMALL.get(name, name) for name in found]
    done = RUNNER.invoke(main.app, words + (SMALL_RUN if words[0] == "pretrain" else []))
    assert done.exit_code == 0, f"{' '.join(words)}: {done.output} {done.exception!r}"
    return done.stdout


@pytest.mark.slow
def test_by_hub_name_and_all_that_follows(place):
    for command in commands("A. ") + commands("Then"):
        run(command, place)
    results = open_artifact(place / "train", "corpus").results
    assert results["n_documents"] > 1000
    assert set(results["domains"]) == {"Pile-CC", "Github", "ArXiv"}
    assert results["domains"] == open_artifact(place / "train-from-files", "corpus").results["domains"]
    assert open_artifact(place / "gap", "gap").results
    assert (place / "curves" / "report.html").is_file()
    assert (place / "report" / "report.html").is_file()


@pytest.mark.slow
def test_megatron_files(place):
    shown = [run(command, place) for command in commands("B. ")]
    assert "200 documents (from the document index), 200 separators (id 0)" in shown[0]
    assert "40 documents (from the document index), 40 separators" in shown[1]
    for command in commands("Then")[:2]:
        run(command, place)
    assert open_artifact(place / "labels", "labels").results["n_ar_hits"] > 0


@pytest.mark.slow
def test_pythia_shards(place):
    download(["monology/pile-uncopyrighted", "--local-dir", "pile"], place)
    shown = [run(command, place) for command in commands("C. ")]
    assert "in 6 documents (from rows of 2049 tokens)" in shown[1]
    assert open_artifact(place / "pythia-losses", "losses").results["n_scored"] > 0


def test_the_page_names_every_part():
    assert [len(commands(section)) for section in ("A. ", "B. ", "C. ", "Then")] == [6, 3, 6, 9]
    assert json.dumps(commands("A. ")).count("--streaming") == 1
