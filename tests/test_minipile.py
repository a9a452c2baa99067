"""The mini-Pile's files are what its manifest and notices say; how its text is cut, mixed and split."""

import json
import sys
import zipfile
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recallgap.artifact import open_artifact
from recallgap.corpus.tokenizer import load_tokenizer

MINIPILE = Path(__file__).parents[1] / "pretrained" / "minipile"
sys.path += [str(MINIPILE), str(MINIPILE / "build")]

import cleaning  # noqa: E402
import fetch  # noqa: E402
import make_eval  # noqa: E402
import manifest  # noqa: E402
import overlap  # noqa: E402
import splitting  # noqa: E402
from packages import Package, packages  # noqa: E402

TEXTS = st.text("ab \n", max_size=400)


@pytest.fixture(scope="module")
def valid():
    return list(make_eval.documents(MINIPILE / "valid.jsonl.zst"))


def test_the_evaluation_split_is_the_manifests_and_only_what_may_be_passed_on(valid):
    expected = json.loads((MINIPILE / "manifest.json").read_text())
    assert manifest.measured(MINIPILE / "valid.jsonl.zst") == expected["valid.jsonl.zst"]
    documents = Counter(document["meta"]["pile_set_name"] for document in valid)
    assert documents == {"books": 31, "code": 33, "dmmath": 48, "formalmath": 28, "speeches": 24}
    notice = (MINIPILE / "NOTICE.md").read_text()
    assert f"`valid.jsonl.zst` {len(valid)} documents" in notice
    sources = {document["meta"]["id"].replace("/", ":").split(":")[0] for document in valid}
    sources -= {source for source in sources if "__" in source}  # modules of the generator
    assert sources == {"tdavid", "mhcc", "networkx", "sympy", "transformers", "setmm", "hoc"}
    assert all(f"| {domain} |" in notice for domain in documents)
    assert all(1500 <= len(document["text"]) <= 8000 for document in valid)


def test_any_prefix_of_the_evaluation_split_has_each_domains_share_of_the_whole(valid):
    whole, so_far = Counter(), Counter()
    for document in valid:
        whole[document["meta"]["pile_set_name"]] += len(document["text"])
    for document in valid:
        so_far[document["meta"]["pile_set_name"]] += len(document["text"])
        shares = [so_far[domain] / whole[domain] for domain in whole]
        assert max(shares) - min(shares) <= 8000 / min(whole.values())


def test_the_counts_are_whole_and_of_all_train_tokens(valid):
    counts = open_artifact(MINIPILE / "counts", "counts", check_content=True)
    assert counts.results["coverage"] == 1
    assert counts.results["train_tokens"] == 74_261_529
    tokenizer = load_tokenizer(str(MINIPILE / "tokenizer.json"))
    assert counts.inputs["tokenizer"] == tokenizer.fingerprint


def test_the_tokenizer_gives_back_any_text_and_spells_numbers_by_digits(valid):
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(MINIPILE / "tokenizer.json"))
    assert tokenizer.get_vocab_size() == 4096
    for text in [document["text"] for document in valid[:20]] + ["caf\u00e9 \u4e2d\u6587\r\n\t 1234\x00"]:
        assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text
    assert tokenizer.encode("2047").tokens == ["2", "0", "4", "7"]


@settings(max_examples=100, deadline=None)
@given(TEXTS, st.integers(15, 60))
def test_excerpts_are_the_text_in_order_without_a_short_rest(text, longest):
    old, make_eval.MIN_CHARACTERS = make_eval.MIN_CHARACTERS, 10
    try:
        parts = list(make_eval.excerpts("id", text, longest))
    finally:
        make_eval.MIN_CHARACTERS = old
    joined = "".join(part for _, part in parts)
    assert text.startswith(joined) and len(text) - len(joined) < 10
    for identity, part in parts:
        start = int(identity.partition("+")[2] or 0)
        assert text[start:].startswith(part) and len(part) <= longest
        assert part.endswith("\n") or "\n" not in part[10:] or start + len(part) == len(text)


def test_first_excerpts_come_before_second_ones_and_stop_at_the_budget(monkeypatch):
    monkeypatch.setattr(make_eval, "MIN_CHARACTERS", 2)
    found = [("a", "123\n456\n"), ("b", "1234"), ("c", "abc\ndef\n")]
    everything = [identity for identity, _ in make_eval.within_budget(found, 100, 4)]
    assert set(everything[:3]) == {"a", "b", "c"} and set(everything[3:]) == {"a+4", "c+4"}
    assert [identity for identity, _ in make_eval.within_budget(found, 13, 4)] == everything[:4]


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.sampled_from("abcd"), st.lists(st.integers(1, 9), min_size=1), min_size=1))
def test_interleaving_keeps_every_domains_order_and_no_domain_runs_ahead(lengths):
    by_domain = {d: [(f"{d}{i}", "x" * n) for i, n in enumerate(sizes)] for d, sizes in lengths.items()}
    rows = list(make_eval.interleaved(by_domain))
    for domain, pairs in by_domain.items():
        assert [(identity, text) for name, identity, text in rows if name == domain] == pairs
    come = dict.fromkeys(lengths, 0)
    for domain, _, text in rows:
        assert all(
            come[domain] * sum(lengths[other]) <= come[other] * sum(lengths[domain]) for other in lengths
        )
        come[domain] += len(text)


@settings(max_examples=100, deadline=None)
@given(TEXTS, st.integers(5, 50))
def test_pieces_hold_every_character_but_the_line_ends_between_them(text, longest):
    parts = list(cleaning.pieces(text, longest))
    joined, whole = ("".join(t).replace("\n", "").rstrip() for t in (parts, text))
    assert joined == whole
    assert all(0 < len(part) <= longest for part in parts)


DOCUMENTS = st.lists(
    st.builds(
        splitting.Document, st.sampled_from("abcdefghijkl"), st.integers(0, 3), st.text("xy ", min_size=1)
    ),
    max_size=60,
)


@settings(max_examples=200, deadline=None)
@given(DOCUMENTS, st.booleans(), st.integers(0, 900))
def test_no_group_is_ever_split(found, check_leaks, max_bytes):
    kept = splitting.sample(found, max_bytes)
    assert all((document in kept) == any(d.group == document.group for d in kept) for document in found)
    train, valid = splitting.split(kept, check_leaks)
    assert not {document.group for document in train} & {document.group for document in valid}
    assert set(train) <= set(kept) and set(valid) <= set(kept)
    if not check_leaks:
        assert Counter(train + valid) == Counter(kept)


def sentence(words):
    return " ".join(f"{word}{i}" for i, word in enumerate(words))


def test_copies_and_near_copies_are_dropped_and_long_texts_cut():
    text = sentence(["word"] * 200)
    near = text + " and a little more of it"
    other = sentence(["other"] * 200)
    source = [("a", text), ("b", text.upper()), ("c", near), ("d", "short"), ("e", other)]
    assert [d.group for d in splitting.documents(source)] == ["a", "c", "e"]
    assert [d.group for d in splitting.documents(source, max_copied=0.5)] == ["a", "e"]
    long = "\n\n".join([sentence(["para"] * 1000)] * 12)
    assert [d.piece for d in splitting.documents([("f", long)])] == [0, 1]


def test_validation_documents_that_repeat_training_text_are_dropped():
    text = sentence(["word"] * 300)
    train = [splitting.Document("t", 0, text)]
    leaks = splitting.Document("v", 0, text[: len(text) // 2])
    fresh = splitting.Document("w", 0, sentence(["fresh"] * 300))
    assert splitting.without_leaks(train, [leaks, fresh]) == [fresh]


def test_overlap_counts_the_shingles_that_occur_in_any_train_text():
    words = [f"w{i}" for i in range(20)]
    valid = [{"text": " ".join(words).upper(), "meta": {"pile_set_name": "x"}}]
    assert overlap.overlap(valid, ["nothing", " ".join(words[2:16])]) == {"x": (8, 2)}


def write_split(folder, name, texts):
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()
    (folder / name).write_bytes(pa.Codec("zstd").compress(lines, asbytes=True))


def test_the_manifest_is_written_checked_and_names_what_differs(tmp_path, monkeypatch, capsys):
    sources = [
        Package("debian", "one", "1.0", "prose", "CC0", "*"),
        Package("pypi", "two", "2", "code", "MIT", "*"),
    ]
    for name in ("prose", "code"):
        write_split(tmp_path, f"{name}.train.jsonl.zst", ["caf\u00e9\n", name])
        write_split(tmp_path, f"{name}.valid.jsonl.zst", [name])
    write_split(tmp_path, "valid.jsonl.zst", ["e"])
    monkeypatch.setattr(manifest, "MANIFEST", tmp_path / "manifest.json")
    monkeypatch.setattr(manifest, "packages", lambda: sources)
    monkeypatch.setattr(sys, "argv", ["manifest.py", str(tmp_path)])
    manifest.main()
    written = json.loads((tmp_path / "manifest.json").read_text())
    assert written["train"] == {"documents": 4, "text_bytes": 2 * 6 + 5 + 4}
    assert written["domains"]["code"]["packages"] == [
        {"name": "two", "version": "2", "registry": "pypi", "licence": "MIT"}
    ]
    sys.argv.append("--check")
    with pytest.raises(SystemExit, match="0"):
        manifest.main()
    write_split(tmp_path, "code.valid.jsonl.zst", ["other"])
    (tmp_path / "prose.train.jsonl.zst").unlink()
    write_split(tmp_path, "valid.jsonl.zst", ["f"])
    capsys.readouterr()
    with pytest.raises(SystemExit, match="1"):
        manifest.main()
    first, second, third = capsys.readouterr().out.splitlines()
    assert first.startswith("valid.jsonl.zst: another text")
    assert second.startswith("code.valid: 1 documents, 5 bytes, not 1 documents, 4 bytes; sha256 ")
    assert third == "prose.train: not there"
    sys.argv.remove("--check")
    with pytest.raises(SystemExit, match="of prose; nothing was written"):
        manifest.main()


def test_a_wheel_is_unpacked_by_its_patterns_without_the_network(tmp_path):
    (tmp_path / "download").mkdir()
    with zipfile.ZipFile(tmp_path / "download" / "some_name-1.0-py3-none-any.whl", "w") as wheel:
        for name in ("some_name/a.py", "some_name/data/b.txt", "some_name/c.so"):
            wheel.writestr(name, name)
    fetch.fetch_pypi(Package("pypi", "some-name", "1.0", "code", "MIT", "*.py some_name/data/*"), tmp_path)
    unpacked = tmp_path / "unpacked" / "some-name"
    assert sorted(str(path.relative_to(unpacked)) for path in cleaning.files(unpacked)) == [
        "some_name/a.py",
        "some_name/data/b.txt",
    ]


def test_every_row_of_the_package_table_can_be_fetched_and_is_in_the_manifest():
    domains = json.loads((MINIPILE / "manifest.json").read_text())["domains"]
    assert {package.domain for package in packages()} == set(domains)
    assert {package.registry for package in packages()} <= set(fetch.FETCH)
    listed = {
        (entry["name"], entry["version"]) for domain in domains.values() for entry in domain["packages"]
    }
    assert listed == {(package.name, package.version) for package in packages()}
