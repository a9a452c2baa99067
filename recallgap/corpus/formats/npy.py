"""NumPy .npy: an array of ids of any integer type. One dimension is a stream, two are one document a row."""

import numpy as np

from recallgap.corpus.formats.token_file import TokenFile, existing_file
from recallgap.errors import CorpusError


def read_npy(paths):
    """NumPy .npy of integer ids: 1-D split at --separator-id, 2-D one document a row"""
    return [_token_file(existing_file(path)) for path in paths]


def _token_file(path):
    doing = f"importing {path}"
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise CorpusError(
            f"{doing}: NumPy cannot map it ({error}). Bare uint16 ids of any name are --format nanogpt"
        ) from None
    if not isinstance(array, np.memmap) or array.dtype.kind not in "iu" or array.ndim not in (1, 2):
        found = f"{array.ndim}-D {array.dtype}" if isinstance(array, np.ndarray) else "an archive of arrays"
        raise CorpusError(f"{doing}: it holds {found}, but a 1-D or 2-D array of integers is expected")
    if not array.flags.c_contiguous:
        raise CorpusError(
            f"{doing}: it is stored column by column; save it again with np.ascontiguousarray(array)"
        )
    size = path.stat().st_size
    if size != array.offset + array.nbytes:
        raise CorpusError(
            f"{doing}: its header and ids need {array.offset + array.nbytes:,} bytes, it has {size:,}"
        )
    rows = {}
    if array.ndim == 2:
        starts_N = np.arange(len(array), dtype=np.int64) * array.shape[1]
        rows = {"starts_N": starts_N, "documents_from": f"rows of {array.shape[1]} tokens"}
    return TokenFile(path=path, dtype=array.dtype, header=array.offset, **rows)
