"""Parquet files: the text and domain columns alone are read, a few rows at a time."""

import pyarrow as pa
import pyarrow.parquet as pq

from recallgap.corpus.readers.documents import damaged
from recallgap.corpus.readers.tables import ROWS_PER_BATCH, documents_of, needed_columns


def read_parquet(file, options):
    """The documents of a Parquet file, in row order."""
    row = 1
    try:
        with pq.ParquetFile(file.path) as parquet:
            columns = [c for c in needed_columns(parquet.schema_arrow, file, options) if c]
            for batch in parquet.iter_batches(batch_size=ROWS_PER_BATCH, columns=columns):
                yield from documents_of(pa.table(batch), row, file, options)
                row += batch.num_rows
    except (pa.ArrowException, OSError) as error:
        raise damaged(f"{file.name}:{row}", error) from error
