"""recallgap corpus build and info: results on stdout, all else on stderr, mistakes in one line."""

import json

import pytest
from typer.testing import CliRunner

from recallgap.cli import main
from recallgap.corpus import build, write_corpus

RUNNER = CliRunner()


@pytest.fixture
def texts(tmp_path):
    rows = [
        {"text": t, "meta": {"pile_set_name": d}}
        for t, d in (("the fox\n", "prose"), ("", ""), ("a\ud83d", "x"))
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path / "a.jsonl"


def run(*arguments):
    return RUNNER.invoke(main.app, ["corpus", *map(str, arguments)])


def test_build_and_info(texts, tokenizer_file, tmp_path):
    out = tmp_path / "out"
    built = run("build", texts, "--tokenizer", tokenizer_file, "-o", out)
    assert built.exit_code == 0, built.output
    (line,) = built.stdout.splitlines()
    assert line.startswith(f"{out}: ")
    assert "in 2 documents" in line
    assert "skipped 1 empty documents, replaced 1 pieces of invalid UTF-8" in line
    assert line.endswith(" tokens/s")
    assert run("build", texts, "--tokenizer", tokenizer_file, "-o", out).stdout.endswith("; there already\n")
    shown = run("info", out)
    assert shown.exit_code == 0
    assert "separator '<|endoftext|>' (id 0) ends each document" in shown.stdout
    assert "a.jsonl:1: 'the fox\\n<|endoftext|>'" in shown.stdout
    assert "from 1 file(s): a.jsonl" in shown.stdout
    found = json.loads(run("info", out, "--json").stdout)
    assert found["domains"].keys() == {"prose", "x"}
    assert (found["n_documents"], found["separator_id"], found["dtype"]) == (2, 0, "uint16")
    assert len(found["tokenizer_fingerprint"]) == len(found["text_fingerprint"]) == 64


def test_a_build_that_goes_on_says_so(texts, tokenizer_file, tmp_path, monkeypatch):
    command = ("build", texts, "--tokenizer", tokenizer_file, "-o", tmp_path / "out", "--shard-tokens", 1)

    def killed(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(build, "corpus_totals", killed)
        assert run(*command).exit_code != 0
    assert run(*command).stdout.endswith("; continued\n")


def test_info_of_a_corpus_of_ids(tmp_path):
    write_corpus(tmp_path / "c", [([5, 6], "a"), [7]], vocab_size=9)
    shown = run("info", tmp_path / "c")
    assert "3 tokens, 2 documents" in shown.stdout
    assert "separator none" in shown.stdout
    assert "sample 0: '5 6'" in shown.stdout


def test_a_mistake_is_one_message_and_exit_2(texts, tmp_path, monkeypatch, capsys):
    arguments = ["corpus", "build", str(texts), "--tokenizer", str(tmp_path / "none.json"), "-o", "out"]
    monkeypatch.setattr("sys.argv", ["recallgap", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main.main()
    assert stopped.value.code == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert (
        shown.err
        == f"recallgap: loading tokenizer {tmp_path / 'none.json'}: there is no such file or folder\n"
    )
