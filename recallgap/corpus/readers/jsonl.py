"""JSON lines, plain or compressed: one object a line is one document. Blank lines are skipped."""

import codecs
import json

from recallgap.corpus.readers.documents import (
    PILE_DOMAIN_FIELD,
    Document,
    damaged,
    decode,
    lookup,
    missing_field,
    not_a_string,
    open_bytes,
    without_lone_surrogates,
)
from recallgap.errors import CorpusError


def read_jsonl(file, options):
    """The documents of a JSON-lines file."""
    for number, line in _lines(file):
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        if line.strip():
            yield _document(line, f"{file.name}:{number}", file, options)


def _lines(file):
    number = 0
    try:
        with open_bytes(file.path) as stream:
            for number, line in enumerate(stream, 1):
                yield number, line
    except OSError as error:
        raise damaged(f"{file.name}:{number + 1}", error) from error


def _document(line, source, file, options):
    text, n_invalid = decode(line, source, options.strict)
    try:
        record = json.loads(text)
    except ValueError as error:
        raise CorpusError(f"reading {source}: the line is not JSON ({error})") from None
    if not isinstance(record, dict):
        found = type(record).__name__
        raise CorpusError(f"reading {source}: the line is a JSON {found}, but an object is expected")
    text = _string(record, options.text_field, "text", source)
    text, n_lone = without_lone_surrogates(text, source, options.strict)
    domain, _ = without_lone_surrogates(_domain(record, source, file, options), source, options.strict)
    return Document(text, domain, source, n_invalid + n_lone)


def _string(record, field, role, source):
    try:
        value = lookup(record, field)
    except KeyError:
        raise missing_field(source, role, field, record) from None
    if not isinstance(value, str):
        raise not_a_string(source, role, field, value)
    return value


def _domain(record, source, file, options):
    if options.domain_field is not None:
        return _string(record, options.domain_field, "domain", source)
    try:
        found = lookup(record, PILE_DOMAIN_FIELD)
    except KeyError:
        found = None
    return file.domain if found is None else str(found)
