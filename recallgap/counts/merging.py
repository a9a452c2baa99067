"""Adding up counts: those of the tasks of one job, or of several training corpora."""

from recallgap.counts.plan import counts_plan, numbers_of, ranges_text, with_counts
from recallgap.counts.store import open_counts, write_counts
from recallgap.errors import ConfigError, CountsError
from recallgap.staging import stage, up_to_date

SAME_CONFIG = ("orders", "across_documents", "block_tokens", "vocab_size")
SAME_INPUTS = ("evaluation", "tokenizer")


def merge_counts(parts, out, *, overwrite=False):
    """Add up `Counts` of the same n-grams; writes folder `out`, returns `Counts`.

    The order of `parts` makes no difference to any byte, and all tasks of a job merge to what one run writes.
    CountsError where they were made for different evaluation corpora or with different settings, or where a
    training block is in two of them.
    """
    parts = list(parts)
    if not parts:
        raise ConfigError(f"merging counts into {out}: none were given")
    first, doing = parts[0], f"merging counts into {out}"
    for part in parts[1:]:
        _check_same(doing, first, part)
    plan = counts_plan(
        _united_blocks(doing, parts),
        **{key: first.config[key] for key in SAME_CONFIG},
        **{key: first.inputs[key] for key in SAME_INPUTS},
    )
    if not overwrite and up_to_date(out, **plan):
        return open_counts(out)
    with stage(out, **plan, overwrite=overwrite) as staging:
        keys = {order: first.keys(order) for order in first.key_orders}
        counts = {order: sum(part.counts(order) for part in parts) for order in first.orders}
        write_counts(staging, keys, counts)
        staging.results = with_counts(_summed_results([part.results for part in parts]), counts)
    return open_counts(out)


def _check_same(doing, first, part):
    pairs = [(key, first.config[key], part.config[key]) for key in SAME_CONFIG]
    pairs += [(key, first.inputs[key], part.inputs[key]) for key in SAME_INPUTS]
    differing = [
        f"{key} is {old} in {first.path}, {new} in {part.path}" for key, old, new in pairs if old != new
    ]
    if differing:
        raise CountsError(
            f"{doing}: {'; '.join(differing)}. Only counts of the same n-grams, counted in the same way, "
            "can be added up"
        )


def _united_blocks(doing, parts):
    """{training corpus: all its blocks}; CountsError where two parts hold the same block."""
    holders = {}
    for part in parts:
        for train, text in part.config["blocks"].items():
            held = holders.setdefault(train, {})
            twice = numbers_of(text) & held.keys()
            if twice:
                raise CountsError(
                    f"{doing}: {held[min(twice)].path} and {part.path} both hold block {ranges_text(twice)} "
                    f"of training corpus {train[:12]}, so these would be counted twice; leave one out"
                )
            held.update(dict.fromkeys(numbers_of(text), part))
    return {train: held.keys() for train, held in holders.items()}


def _summed_results(results):
    """What `planned_results` would be for all the blocks together."""
    train, orders = {}, {}
    for part in results:
        for name, tokens in part["train"].items():
            summed = train.setdefault(name, {"n_tokens": tokens["n_tokens"], "n_counted": 0})
            summed["n_counted"] += tokens["n_counted"]
        for order, totals in part["orders"].items():
            summed = orders.setdefault(order, {"n_ngrams": 0, "n_skipped_at_borders": 0})
            for key in summed:
                summed[key] += totals[key]
    return {"train": train, "orders": orders}
