"""What all sources share: tidying text, cutting it, and removing mark-up."""

import hashlib
import html
import re

MIN_CHARACTERS = 400
MAX_CHARACTERS = 60_000


def number(text):
    """A number of 64 bits that depends on the text alone (Python's hash() differs between processes)."""
    return int.from_bytes(hashlib.sha1(text.encode("utf-8", "replace")).digest()[:8], "big")


def tidy(text):
    """Unix line ends, no blanks at them, at most two blank lines in a row, one line end at the end."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\x00", "").replace("\ufeff", "")
    text = re.sub(r"[ \t]+\n", "\n", text)
    return re.sub(r"\n{4,}", "\n\n\n", text).strip() + "\n"


def pieces(text, max_characters=MAX_CHARACTERS):
    """Cut a text after a paragraph, else after a line, else anywhere; no piece is over max_characters."""
    while len(text) > max_characters:
        end = text.rfind("\n\n", max_characters // 2, max_characters)
        if end < 0:
            end = text.rfind("\n", max_characters // 2, max_characters)
        if end < 0:
            end = max_characters
        yield text[:end]
        text = text[end:].lstrip("\n")
    if text.strip():
        yield text


def gathered(parts, characters):
    """Join successive parts until a text is longer than `characters`; the last may be shorter."""
    text = ""
    for part in parts:
        text += part
        if len(text) > characters:
            yield text
            text = ""
    if text:
        yield text


def without_tags(text):
    """The text of HTML or XML: elements that end a line become line ends, entities their characters."""
    text = re.sub(r"(?is)<(script|style)\b.*?</\1>", " ", text)
    text = re.sub(r"(?i)<(br|/p|/div|/li|/h\d|lb|l)\b[^>]*>", "\n", text)
    return html.unescape(re.sub(r"<[^>]+>", "", text))


def read(path):
    """A file's text; bytes that are no UTF-8 become U+FFFD."""
    return path.read_text(encoding="utf-8", errors="replace")


def files(folder, pattern="*"):
    """The files below a folder that fit the pattern, in the order of their whole names."""
    # Not Path's own order, which compares folder by folder: the first of two near-copies is the one kept.
    return sorted((path for path in folder.rglob(pattern) if path.is_file()), key=str)
