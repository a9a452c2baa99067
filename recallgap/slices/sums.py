"""Per-document sums of losses in every slice: all that the statistics need of the tokens.

Tokens are read in blocks, so memory holds one block and the sums. Sums are float64; nothing is divided here.

Legend: B tokens of a block, D documents, K slices of a family, M models (the baseline first), X = 1 + M rows:
the number of tokens, then the loss of each model.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from recallgap.errors import ArtifactError
from recallgap.progress import Progress
from recallgap.slices.blocks import dictionary_values, read_blocks


@dataclass(frozen=True)
class Sums:
    """Tokens and losses of the documents that have scored tokens, slice by slice of one family."""

    n_DK: np.ndarray
    """Scored tokens, float64 (exact)."""
    loss_MDK: np.ndarray
    """Sums of losses in nats, float64."""


@dataclass(frozen=True)
class Scan:
    """What one pass over the tokens finds."""

    sums: dict
    """{family name: Sums}, all with the same documents."""
    n_scored: list
    """Tokens that each model scored, the baseline first."""
    n_used: int
    """Tokens that all of them scored: those in the sums."""
    hits_by_distance: np.ndarray
    """hits_by_distance[d]: AR hits among the used tokens whose latest earlier occurrence is d tokens back."""


def scan(labels, losses, families, *, common):
    """One pass over the label table and the losses (baseline first) beside it.

    families: {name: Family}. ArtifactError when two models score different tokens, unless `common`.
    """
    columns = sorted({"document", "ar_hit", "distance"}.union(*(f.columns for f in families.values())))
    pieces = {name: [] for name in families}
    n_scored, hits_by_distance = np.zeros(len(losses), np.int64), np.zeros(0, np.int64)
    done = 0
    files = labels.artifact.files("tokens-")
    domains = dictionary_values(files, "domain")
    blocks = zip(read_blocks(files, columns), *(model.blocks() for model in losses), strict=True)
    with Progress("slices", total=labels.results["n_tokens"]) as progress:
        for table, *loss_MB in blocks:
            scored_MB = ~np.isnan(loss_MB)
            if not common:
                _refuse_other_tokens(losses, scored_MB, done)
            n_scored += scored_MB.sum(axis=1)
            used_B = scored_MB.all(axis=0)
            column = {c: _array(table[c], domains)[used_B] for c in columns}
            loss_MU = [loss_B[used_B].astype(np.float64) for loss_B in loss_MB]
            for name, family in families.items():
                codes = family.codes(*(column[c] for c in family.columns))
                pieces[name].append(_sum_block(column["document"], codes, len(family.slices), loss_MU))
            hits_by_distance = _add(hits_by_distance, np.bincount(column["distance"][column["ar_hit"]]))
            done += len(used_B)
            progress.advance(len(used_B))
    _refuse_damaged(losses, n_scored)
    sums = _joined(pieces)
    return Scan(sums, n_scored.tolist(), int(next(iter(sums.values())).n_DK.sum()), hits_by_distance)


def _array(column, domains):
    """A column as numpy; the one column of texts as indices into `domains`, its sorted values."""
    if not pa.types.is_dictionary(column.type):
        return column.to_numpy()
    column = column.combine_chunks()
    return np.searchsorted(domains, column.dictionary.to_pylist())[column.indices.to_numpy()]


def _sum_block(document_B, code_B, n_slices, loss_MB):
    """(number of its first document, sums_XDK) of one block; documents come in ascending order."""
    if len(document_B) == 0:
        return 0, np.zeros((1 + len(loss_MB), 0, n_slices))
    first, last = int(document_B[0]), int(document_B[-1])
    shape = (last - first + 1, n_slices)
    cell_B = (document_B.astype(np.int64) - first) * n_slices + code_B
    n_cells = shape[0] * shape[1]
    rows = [np.bincount(cell_B, minlength=n_cells)]
    rows += [np.bincount(cell_B, weights=loss_B, minlength=n_cells) for loss_B in loss_MB]
    return first, np.stack(rows).reshape(-1, *shape)


def _joined(pieces):
    """{family: Sums} of all blocks. Pieces of a document that lies in several blocks are added."""
    sums, held_D = {}, None
    for name in list(pieces):
        parts = pieces.pop(name)
        n_documents = max((first + part.shape[1] for first, part in parts), default=0)
        sums_XDK = np.zeros((len(parts[0][1]), n_documents, parts[0][1].shape[2]))
        for first, part in parts:
            sums_XDK[:, first : first + part.shape[1]] += part
        held_D = sums_XDK[0].sum(axis=1) > 0 if held_D is None else held_D
        sums[name] = Sums(sums_XDK[0, held_D], sums_XDK[1:, held_D])
    return sums


def _add(a, b):
    """Sum of two count vectors, the shorter one padded with zeros."""
    total = np.zeros(max(len(a), len(b)), np.int64)
    total[: len(a)] += a
    total[: len(b)] += b
    return total


def _refuse_other_tokens(losses, scored_MB, done):
    for model, scored_B in zip(losses[1:], scored_MB[1:], strict=True):
        differs_B = scored_B != scored_MB[0]
        if differs_B.any():
            token = int(differs_B.argmax())
            only = losses[0] if scored_MB[0][token] else model
            raise ArtifactError(
                f"comparing {losses[0].path} ({losses[0].results['n_scored']:,} scored tokens) with "
                f"{model.path} ({model.results['n_scored']:,}): they score different tokens; the first is "
                f"token {done + token:,}, which only {only.name} scores. Evaluate both alike, or compare the "
                "tokens that all of them score with --common"
            )


def _refuse_damaged(losses, n_scored):
    for model, found in zip(losses, n_scored, strict=True):
        expected = model.results["n_scored"]
        if found != expected:
            raise ArtifactError(
                f"comparing {model.path}: {found:,} tokens have a loss, but its record says {expected:,} are "
                "scored (is a loss NaN?). Evaluate it again"
            )
