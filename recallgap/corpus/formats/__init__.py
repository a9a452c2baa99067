"""Formats of files that hold token ids already. One file a format, one line here to add it.

A format is `read(paths)`, which gives the TokenFiles behind the paths in the order of the stream. It reads
indices and headers, checks that they agree with the files, and leaves the ids where they are. Every fault is
a CorpusError that names the file.
"""

from recallgap.corpus.formats.megatron import read_megatron
from recallgap.corpus.formats.nanogpt import read_nanogpt
from recallgap.corpus.formats.npy import read_npy
from recallgap.corpus.formats.pythia import read_pythia
from recallgap.corpus.formats.token_file import TokenFile

__all__ = ["FORMATS", "TokenFile"]

FORMATS = {
    "megatron": read_megatron,
    "nanogpt": read_nanogpt,
    "npy": read_npy,
    "pythia": read_pythia,
}
