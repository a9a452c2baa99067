"""A labels artifact: the token table, one row a corpus token, in corpus order.

    tokens-00000.parquet ...   zstd, row groups of ROW_GROUP rows

    document         uint32   number of the document
    context          uint32   number of the context
    position         uint32   place in the context; the token at 0 is never predicted
    token            uint16 or int32
    domain           dictionary of strings
    distance         uint32   tokens back to the latest earlier occurrence of the n-gram in the context, or 0
    first_distance   uint32   the same to the first occurrence
    followers        uint32   distinct tokens that followed the prefix earlier in this context
    train_count      uint64   how often the n-gram occurs in training; 0 where it starts before the context
    train_count_3 .. uint64   the same for further orders
    ar_hit           bool     distance > 0 and train_count <= max_train_count

Every entry speaks of the row's token as the thing predicted: of the n-gram that ends with it.
Legend: T tokens of the corpus.
"""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from recallgap.artifact import Opened, open_artifact

ROW_GROUP = 1 << 17


def shard_name(number):
    return f"tokens-{number:05d}.parquet"


def count_column(order):
    """Name of the column with training counts of a further order."""
    return f"train_count_{order}"


def write_table(path, columns):
    """Write one shard of the token table; columns: {name: numpy or Arrow array}."""
    table = pa.table({name: pa.array(values) for name, values in columns.items()})
    pq.write_table(
        table,
        path,
        compression="zstd",
        row_group_size=ROW_GROUP,
        use_dictionary=["domain"],
    )


class Labels(Opened):
    """The token table of a corpus, opened."""

    def column(self, name):
        """A whole column, numpy (T,)."""
        return self._read(name).to_numpy()

    def domains(self):
        """(number of its domain for each token, the names), the numbers being indices into the names."""
        column = self._read("domain").unify_dictionaries().combine_chunks()
        return column.indices.to_numpy(), column.dictionary.to_pylist()

    def _read(self, name):
        files = self.artifact.files("tokens-")
        return pa.chunked_array([c for f in files for c in pq.read_table(f, columns=[name])[name].chunks])


def count_true(paths, names):
    """Number of rows, over all shards, whose value is not 0 or false; names: {column: name of its number}."""
    totals = dict.fromkeys(names.values(), 0)
    for path in paths:
        table = pq.read_table(path, columns=list(names))
        for column, name in names.items():
            totals[name] += int(np.count_nonzero(table[column].to_numpy()))
    return totals


def open_labels(path):
    """Open a labels folder made by `label`."""
    return Labels(open_artifact(path, "labels"))
