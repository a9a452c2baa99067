"""From per-document sums to what the gap record holds: estimates with intervals, and warnings.

Formulae, for slice k, with sums over documents d, tokens n, losses L and S = L_model - L_baseline:
    loss         sum_d L_kd / sum_d n_kd            perplexity  exp(loss)
    gap          sum_d S_kd / sum_d n_kd            of the slice's own tokens
    contribution sum_d S_kd / sum_d n_d             adds up to the overall gap over the slices of a family
    share        sum_d S_kd / sum_d S_d             adds up to 1

Legend: D documents, K slices of a family, M models (the baseline first).
"""

import math
from dataclasses import asdict

from recallgap.slices.intervals import Interval, effective_documents, mean_interval, share_set

FEW_DOCUMENTS, FEW_EFFECTIVE = 30, 20


def family_record(family, sums, level):
    """JSON record of one family: for each slice its tokens, documents and, per model, every estimate."""
    return [asdict(part) | _slice_record(sums, k, level) for k, part in enumerate(family.slices)]


def _slice_record(sums, k, level):
    n_D = sums.n_DK[:, k]
    models = [_loss_record(loss_DK[:, k], n_D, level) for loss_DK in sums.loss_MDK]
    for model, loss_DK in zip(models[1:], sums.loss_MDK[1:], strict=True):
        difference_DK = loss_DK - sums.loss_MDK[0]
        part_D = difference_DK[:, k]
        model["gap"] = asdict(mean_interval(part_D, n_D, level))
        model["contribution"] = asdict(mean_interval(part_D, sums.n_DK.sum(axis=1), level))
        model["share"] = asdict(share_set(part_D, difference_DK.sum(axis=1), level))
    return {"n": int(n_D.sum()), "n_documents": int((n_D > 0).sum()), "models": models}


def _loss_record(loss_D, n_D, level):
    loss = mean_interval(loss_D, n_D, level)
    return {"loss": asdict(loss), "perplexity": asdict(_exponential(loss))}


def _exponential(interval):
    """exp of an estimate and of its ends; None where there is none, or where it is too large for a float."""
    ends = (interval.estimate, interval.low, interval.high)
    return Interval(*(math.exp(x) if x is not None and x < 700 else None for x in ends))


def document_record(n_D):
    """How many documents there are, and how evenly the tokens lie in them."""
    return {
        "n": len(n_D),
        "effective": float(effective_documents(n_D)),
        "largest_share": float(n_D.max() / n_D.sum()),
    }


def warnings_of(record):
    """What a reader must know before trusting the numbers of a gap record, as sentences."""
    return [
        *_document_warnings(record["documents"]),
        *_slice_warnings(record["families"]),
        *_left_out_warnings(record["models"]),
        *_share_warnings(record),
        *_coverage_warnings(record["labels"]["results"]),
    ]


def _document_warnings(documents):
    n, effective = documents["n"], documents["effective"]
    if n < FEW_DOCUMENTS:
        yield f"Only {n} document(s) have scored tokens (wanted: {FEW_DOCUMENTS}): the intervals are rough."
    if effective < FEW_EFFECTIVE:
        yield (
            f"The {n} document(s) weigh like {effective:.1f} equally long ones, and the longest has "
            f"{documents['largest_share']:.0%} of the tokens: the intervals are rough."
        )


def _slice_warnings(families):
    for family, slices in families.items():
        empty = [s["name"] for s in slices if s["n"] == 0 and s["at_least"] is None]
        if empty:
            yield f"Slices by {family}: no token is scored in {', '.join(empty)}."
    if any(few_documents(s["n_documents"]) for slices in families.values() for s in slices):
        yield (
            f"Slices with tokens of fewer than {FEW_DOCUMENTS} documents are marked (few) in the tables: "
            "their intervals are rough."
        )


def few_documents(n):
    """True where a slice has tokens of so few documents that its intervals are rough."""
    return 0 < n < FEW_DOCUMENTS


def _left_out_warnings(models):
    for model in models:
        if model["n_left_out"]:
            yield (
                f"{model['n_left_out']:,} of {model['n_scored']:,} tokens scored by {model['name']} are left "
                "out, because not every model scores them."
            )


def _share_warnings(record):
    whole = record["families"]["recall"][0]["models"]
    for model, estimates in zip(record["models"][1:], whole[1:], strict=True):
        if estimates["share"]["kind"] != "interval":
            yield (
                f"The total gap of {model['name']} is not distinguishable from 0 over these documents, so "
                "shares of it are undefined."
            )


def _coverage_warnings(results):
    if results["coverage"] < 1:
        yield (
            f"The training counts cover {results['coverage']:.1%} of the training corpus: true counts are "
            "higher, and some AR hits may be none."
        )
