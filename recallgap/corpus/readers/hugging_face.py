"""Hugging Face `datasets`: a folder written by save_to_disk, or a dataset of the hub by name."""

from recallgap.corpus.readers.tables import ROWS_PER_BATCH, documents_of
from recallgap.errors import CorpusError


def is_saved_dataset(path):
    """True for a folder that Dataset.save_to_disk or DatasetDict.save_to_disk wrote."""
    return (path / "dataset_dict.json").is_file() or (path / "state.json").is_file()


def read_dataset(file, options):
    """The documents of a dataset, in its order; a hub dataset can be streamed."""
    row = 1
    for table in _tables(file, options):
        yield from documents_of(table, row, file, options)
        row += table.num_rows


def _tables(file, options):
    """Its rows as Arrow tables; what goes wrong on the way is a CorpusError with the first row missing."""
    tables, row = iter(_open(file, options).with_format("arrow").iter(batch_size=ROWS_PER_BATCH)), 1
    while True:
        try:
            table = next(tables, None)
        except Exception as error:  # of its decompressors, parsers and http clients, which share no base
            raise CorpusError(
                f"reading dataset {file.name}: row {row} and those after it cannot be had "
                f"({type(error).__name__}: {error}). If the connection broke, run the same command again: it "
                "goes on behind the last finished shard"
            ) from error
        if table is None:
            return
        yield table
        row += table.num_rows


def _open(file, options):
    try:
        dataset = _load_from_hub(file, options) if file.path is None else _load_from_disk(file)
    except (OSError, ValueError, RuntimeError) as error:
        raise CorpusError(f"reading dataset {file.name}: {error}") from error
    if isinstance(dataset, dict):
        if options.dataset_split not in dataset:
            asked = f"no split '{options.dataset_split}'" if options.dataset_split else "several splits"
            raise CorpusError(
                f"reading dataset {file.name}: it has {asked}; pick one with --split: {', '.join(dataset)}"
            )
        dataset = dataset[options.dataset_split]
    return dataset


def _load_from_disk(file):
    from datasets import load_from_disk

    return load_from_disk(str(file.path))


def _load_from_hub(file, options):
    from datasets import load_dataset

    return load_dataset(
        file.name,
        options.dataset_config,
        split=options.dataset_split,
        revision=options.dataset_revision,
        streaming=options.streaming,
    )
