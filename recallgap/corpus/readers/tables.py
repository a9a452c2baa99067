"""Documents of Arrow tables, which Parquet files and `datasets` both yield. One row is one document."""

import pyarrow as pa
import pyarrow.compute as pc

from recallgap.corpus.readers.documents import (
    PILE_DOMAIN_FIELD,
    Document,
    decode,
    missing_field,
    not_a_string,
)
from recallgap.errors import CorpusError

ROWS_PER_BATCH = 256
TEXT_KINDS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)


def needed_columns(schema, file, options):
    """(text column, domain column or None) as dotted paths; CorpusError where the table lacks them."""
    if not _has(schema, options.text_field):
        raise missing_field(file.name, "text", options.text_field, schema.names)
    if options.domain_field is None:
        return options.text_field, PILE_DOMAIN_FIELD if _has(schema, PILE_DOMAIN_FIELD) else None
    if not _has(schema, options.domain_field):
        raise missing_field(file.name, "domain", options.domain_field, schema.names)
    return options.text_field, options.domain_field


def _has(schema, path):
    fields = {field.name: field.type for field in schema}
    for name in path.split("."):
        if name not in fields:
            return False
        kind = fields[name]
        fields = {f.name: f.type for f in kind.fields} if pa.types.is_struct(kind) else {}
    return True


def documents_of(table, first_row, file, options):
    """The documents of a table whose first row has number `first_row` (from 1) in its file."""
    text_path, domain_path = needed_columns(table.schema, file, options)
    texts = _as_bytes(_column(table, text_path), file, text_path)
    domains = _column(table, domain_path).to_pylist() if domain_path else [None] * len(texts)
    for row, (raw, domain) in enumerate(zip(texts, domains, strict=True), first_row):
        source = f"{file.name}:{row}"
        if raw is None:
            raise not_a_string(source, "text", text_path, raw)
        if options.domain_field is not None and not isinstance(domain, str):
            raise not_a_string(source, "domain", domain_path, domain)
        text, n_replaced = decode(raw, source, options.strict)
        yield Document(text, file.domain if domain is None else str(domain), source, n_replaced)


def _column(table, path):
    first, *rest = path.split(".")
    column = table.column(first)
    for name in rest:
        column = pc.struct_field(column, name)
    return column


def _as_bytes(column, file, path):
    """The column's values as bytes: Arrow does not check that its strings are UTF-8, so decode() does."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not any(is_kind(kind) for is_kind in TEXT_KINDS):
        raise CorpusError(f"reading {file.name}: column '{path}' holds {kind}, but the text must be a string")
    return column.cast(kind).cast(pa.large_binary()).to_pylist()
