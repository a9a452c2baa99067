"""From input files to one stream of documents that can be left and taken up again at any document."""

from dataclasses import dataclass
from itertools import islice

from recallgap.artifact import file_sha256, fingerprint_of
from recallgap.corpus.readers import read


@dataclass(frozen=True)
class Reading:
    """How far the input was read, and what was met on the way."""

    file: int = 0
    """Number of the input file, from 0."""
    records: int = 0
    """Documents taken from that file, empty ones included."""
    n_documents: int = 0
    """Documents with text so far, in all files."""
    n_empty: int = 0
    n_replaced: int = 0

    def after(self, document, file, records):
        """The reading once `document`, number `records` of its file, is taken too."""
        has_text = document.text != ""
        return Reading(
            file=file,
            records=records,
            n_documents=self.n_documents + has_text,
            n_empty=self.n_empty + (not has_text),
            n_replaced=self.n_replaced + document.n_replaced,
        )


def documents_after(reading, files, options, max_documents=None):
    """Yield (document, the reading after it) from where `reading` stands; empty documents come too.

    Files read before are not opened. Ends behind the `max_documents`-th document with text (None: no limit).
    """
    first = reading.file
    skip = reading.records
    for number, file in enumerate(files[first:], first):
        if reading.n_documents == max_documents:
            return
        for n, document in enumerate(islice(read(file, options), skip, None), skip + 1):
            reading = reading.after(document, number, n)
            yield document, reading
            if reading.n_documents == max_documents:
                return
        skip = 0


def input_records(files, options):
    """What identifies each input file, as JSON values: its name, how it is read, and its content.

    A hub dataset's content is not hashed: it is identified by name, configuration, split and revision.
    """
    return [_input_record(file, options) for file in files]


def _input_record(file, options):
    record = {"name": file.name, "format": file.format, "domain": file.domain}
    if file.path is None:
        asked = {"config": options.dataset_config, "revision": options.dataset_revision}
        return {**record, **asked, "split": options.dataset_split}
    if file.path.is_file():
        return {**record, "bytes": file.path.stat().st_size, "sha256": file_sha256(file.path)}
    paths = sorted(p for p in file.path.rglob("*") if p.is_file() and not p.name.startswith("cache-"))
    hashes = [[p.relative_to(file.path).as_posix(), file_sha256(p)] for p in paths]
    content = {"bytes": sum(p.stat().st_size for p in paths), "sha256": fingerprint_of(hashes)}
    return {**record, **content, "split": options.dataset_split}
