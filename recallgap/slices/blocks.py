"""Reading the token table and the losses side by side, a block of tokens at a time."""

import pyarrow as pa
import pyarrow.parquet as pq

BLOCK = 1 << 18


def read_blocks(files, columns, rows=BLOCK):
    """Yield the rows of Parquet `files`, in order, as tables of `rows` rows; only the last may be shorter.

    Files and row groups may end anywhere, so two tables with the same rows give blocks that fit each other.
    """
    held, n_held = [], 0
    for path in files:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=rows, columns=columns):
                while batch.num_rows:
                    taken = batch.slice(0, rows - n_held)
                    batch = batch.slice(taken.num_rows)
                    held.append(taken)
                    n_held += taken.num_rows
                    if n_held == rows:
                        yield pa.Table.from_batches(held).unify_dictionaries()
                        held, n_held = [], 0
    if held:
        yield pa.Table.from_batches(held).unify_dictionaries()


def dictionary_values(files, column):
    """The distinct values of a dictionary-encoded column, sorted."""
    values = set()
    for table in read_blocks(files, [column]):
        used = table[column].combine_chunks().unique()
        values.update(used.to_pylist())
    return sorted(values)
