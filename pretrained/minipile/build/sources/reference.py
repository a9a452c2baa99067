"""Dictionaries (dictd), Wikipedia (MediaWiki) and Metamath: formats of many short entries."""

import bz2
import gzip
import html
import re

from cleaning import files, gathered, read, without_tags


def dictionaries(unpacked):
    """(group, text) of the Free On-line Dictionary of Computing and the GNU dictionary of English (GCIDE)."""
    for name, entries in (("foldoc", foldoc_entries), ("gcide", gcide_entries)):
        with gzip.open(unpacked / f"dict-{name}/usr/share/dictd/{name}.dict.dz") as stream:
            text = stream.read().decode("utf-8", "replace")
        for number, joined in enumerate(gathered(entries(text), 8000)):
            yield f"{name}:{number}", joined


def foldoc_entries(text):
    """The entries of a dictd file in which headwords alone begin a line; {references} lose their braces."""
    for entry in re.split(r"\n(?=\S)", text):
        yield re.sub(r"\{([^{}]*)\}", r"\1", entry).rstrip() + "\n\n"


def gcide_entries(text):
    """The entries of GCIDE, parted by blank lines, without marks of their source; no mere references."""
    mark = r"\n\s*\[1913 Webster[^\]]*\]|\[1913 Webster[^\]]*\]|\[PJC\]|\[WordNet 1.5\]"
    for entry in re.split(r"\n\n(?=\S)", re.sub(mark, "", text)):
        if len(entry) >= 160:
            yield re.sub(r"[{}]", "", re.sub(r"\n {3,}", "\n  ", entry)).rstrip() + "\n\n"


def encyclopedia(unpacked):
    """(group, text) of the English Wikipedia articles among gensim's test data."""
    for path in files(unpacked / "gensim/gensim/test/test_data", "enwiki*.bz2"):
        with bz2.open(path, "rt", encoding="utf-8", errors="replace") as stream:
            for title, text in articles(stream.read()):
                yield f"enwiki:{title}", f"{title}\n\n{text}"


def articles(xml):
    """(title, plain text) of every page of a MediaWiki export that is no redirect."""
    for found in re.finditer(r"(?s)<title>(.*?)</title>.*?<text[^>]*>(.*?)</text>", xml):
        title, text = map(html.unescape, found.groups())
        if not text.lstrip().lower().startswith("#redirect"):
            yield title, wiki_text(text)


def wiki_text(text):
    """Wiki mark-up as plain text: no comments, references, formulae, templates, tables or pictures."""
    text = re.sub(r"(?s)<!--.*?-->", "", text)
    text = re.sub(r"(?is)<ref[^>/]*/>|<ref.*?</ref>|<math.*?</math>|<gallery.*?</gallery>", "", text)
    for _ in range(8):  # templates in templates, from the innermost outwards
        text, changes = re.subn(r"\{\{[^{}]*\}\}|\{\|[^{}]*?\|\}", "", text)
        if not changes:
            break
    text = re.sub(r"(?s)\{\|.*?\n\|\}", "", text)
    other = r"\[\[(?:File|Image|Category|[a-z-]{2,12}):[^\[\]]*(?:\[\[[^\]]*\]\][^\[\]]*)*\]\]"
    for _ in range(3):  # pictures whose captions hold pictures
        text = re.sub(other, "", text)
    text = re.sub(r"\[\[[^\]|]*\|([^\]]*)\]\]", r"\1", text)
    text = re.sub(r"\[\[([^\]]*)\]\]", r"\1", text)
    text = re.sub(r"\[https?://\S+ ?([^\]]*)\]", r"\1", text)
    text = without_tags(re.sub(r"'{2,}", "", text))
    return re.sub(r"(?m)^=+ *(.*?) *=+\s*$", r"\n\1\n", text)


def formal_mathematics(unpacked):
    """(group, text) of Metamath's set.mm, successive statements joined to more than 9,000 characters."""
    text = read(unpacked / "metamath-databases/usr/share/metamath/databases/set.mm")
    for number, joined in enumerate(gathered(metamath_statements(text), 9000)):
        yield f"setmm:{number}", joined


def metamath_statements(text):
    """Statements, each with the comment above it, without credits. Of a compressed proof the theorems that it
    cites are kept, and its letters dropped."""
    proof = r"\$=\s*\(([^)]*)\)[A-Z\s]*\$\."
    text = re.sub(proof, lambda found: "$= " + " ".join(found.group(1).split()) + " $.", text)
    credit = r"\((?:Contributed|Revised|Proof shortened) by[^)]*\)\s*"
    for statement in re.split(r"\n\n(?=  ?\$[\({])", re.sub(credit, "", text)):
        yield statement + "\n\n"
