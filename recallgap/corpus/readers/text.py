"""Plain text: one file is one document, of any suffix. Line ends and NUL bytes stay as they are."""

import codecs

from recallgap.corpus.readers.documents import Document, damaged, decode, open_bytes
from recallgap.errors import CorpusError

UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def read_text(file, options):
    """The one document of a text file; a byte order mark at its start is dropped."""
    source = f"{file.name}:1"
    try:
        with open_bytes(file.path) as stream:
            raw = stream.read()
    except OSError as error:
        raise damaged(source, error) from error
    if raw.startswith(UTF16_MARKS):
        raise CorpusError(f"reading {source}: it starts as UTF-16 text does; convert it to UTF-8")
    text, n_replaced = decode(raw.removeprefix(codecs.BOM_UTF8), source, options.strict)
    yield Document(text, file.domain, source, n_replaced)
