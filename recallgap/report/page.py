"""The page of a gap: what was measured, the tables, the figures, and where every number comes from."""

import json

from recallgap import __version__
from recallgap.report import text
from recallgap.report.markup import Bullets, Heading, Paragraph, Picture
from recallgap.report.tables import Table, main_table, slice_table

CAPTIONS = {
    "train-count": (
        "Perplexity against how often the n-gram that a token ends occurred in training, for n-grams "
        "repeated in the context and for others. Below: the number of tokens in each bin."
    ),
    "hit-distance": "How far back AR hits lie: AR hits per token of distance, both axes logarithmic.",
    "gap-by-distance": (
        "The gap by the distance of the AR hit. Above: per AR hit of the bin, with tokens that are no AR hit "
        "for comparison (dotted). Below: what the bin adds to the overall gap."
    ),
}
SLICE_HEADINGS = {
    "recall": "AR hits and other tokens",
    "domain": "By domain",
    "train_count": "By training count of the n-gram",
    "distance": "By distance of the AR hit",
    "followers": "By ambiguity of the AR hit",
}
CONTEXTS = {
    "packed": "the stream of documents cut every {:,} tokens, across documents",
    "document": "each document on its own, cut every {:,} tokens",
}
SEPARATORS = {
    "drop": "an n-gram with a document separator is never an AR hit",
    "keep": "document separators count like other tokens",
}
STANDING_WARNINGS = (
    "The intervals treat documents as a sample. They do not cover another corpus, another tokenizer or "
    "another training seed of the models. Those of many slices hold one by one, not all at once.",
    "AR hits are a heuristic: recall of longer phrases, paraphrases or synonyms is not counted, and what is "
    "rare in the counted corpus may be frequent in what a model was really trained on.",
)


def page_blocks(gap, figures, *, cap_shares=False):
    """The page as blocks (recallgap.report.markup). figures: names of the pictures that lie beside it."""
    return [
        Heading(_title(gap), 1),
        *_measured(gap),
        Heading("Result"),
        main_table(gap, cap_shares=cap_shares),
        *_reading(gap, cap_shares),
        Heading("Read with care"),
        Bullets([*map(text.shown, gap.warnings), *STANDING_WARNINGS]),
        Heading("Figures"),
        *(Picture(name, CAPTIONS[name]) for name in figures),
        *_slice_tables(gap, cap_shares),
        Heading("Provenance"),
        _provenance(gap),
    ]


def _title(gap):
    baseline, *models = (text.shown(model["name"]) for model in gap.models)
    return f"{', '.join(models)} against {baseline}" if models else f"AR perplexity of {baseline}"


def _measured(gap):
    config, results = gap.record["labels"]["config"], gap.record["labels"]["results"]
    ngram = "bigram" if config["order"] == 2 else f"{config['order']}-gram"
    rate = config["rate_per_million"]
    threshold = f"{config['max_train_count']:,} times" + (
        f" ({rate:g} per million)" if rate is not None else ""
    )
    n, n_documents = gap.slices("all")["all"]["n"], gap.record["documents"]["n"]
    yield Paragraph(
        f"{n:,} tokens of {n_documents:,} documents are scored, each given what precedes it in its "
        f"context. Contexts: {CONTEXTS[config['policy']].format(config['context_len'])}."
    )
    yield Paragraph(
        f"An AR hit (associative recall) is the last token of a {ngram} that occurred before in the same "
        f"context, and at most {threshold} in the {results['train_tokens']:,} training tokens that were "
        "counted: it can be recalled from the context, and hardly from training. All other scored tokens are "
        f"the other tokens; {SEPARATORS[config['separators']]}."
    )
    for model in gap.models:
        if model["config"]["window"]:
            yield Paragraph(
                f"{text.shown(model['name'])} sees at most {model['config']['window']:,} tokens: each "
                "context is cut into windows of that length. AR hits are those of the whole context."
            )


def _reading(gap, cap_shares):
    level = f"{100 * gap.record['config']['level']:g} %"
    yield Paragraph(
        "Each cell: perplexity, in parentheses its natural logarithm (the mean loss in nats per token), in "
        f"brackets the {level} interval of the perplexity."
    )
    if len(gap.models) == 1:
        return
    yield Paragraph(
        "Gap: the mean loss minus that of the baseline (first row), in nats per token. Gap due to AR hits: "
        "the gap summed over AR hits, divided by the gap summed over all tokens; that part of the gap would "
        "close if the model were as good as the baseline on AR hits. It is negative or above 100 % where AR "
        "hits and other tokens pull apart"
        + ("; here it is cut to 0-100 %, as in the paper's table." if cap_shares else ".")
    )
    yield Bullets([_verdict(gap, number, level) for number in range(1, len(gap.models))])


def _verdict(gap, number, level):
    row, p = gap.table()[number], gap.record["p_no_gap"][number - 1]
    found, name = row["ar_hit_share"], text.shown(row["model"])
    start = f"{name}: gap {text.gap(row['gap'])} nats per token (sign-flip test of no gap: p = {p:.2g}). "
    if found.kind != "interval":
        return start + "Its total may be 0 as far as these documents tell, so a share of it is undefined."
    return start + (
        f"AR hits are {text.percent(row['ar_token_share'])} of the tokens and make "
        f"{text.share(found, cap=False)} of the gap (in brackets the {level} Fieller set)."
    )


def _slice_tables(gap, cap_shares):
    for family, heading in SLICE_HEADINGS.items():
        yield Heading(heading)
        for model in range(1, len(gap.models)) or [0]:
            yield slice_table(gap, family, model=model, cap_shares=cap_shares)
    yield Paragraph("Slices without tokens are left out here; slices.csv has all of them as plain numbers.")


def _provenance(gap):
    rows = [["recallgap", __version__], ["gap", gap.fingerprint], *_values("gap", gap.record["config"])]
    origins = {"labels": gap.record["labels"]}
    origins |= {f"model {number}" if number else "baseline": m for number, m in enumerate(gap.models)}
    for name, origin in origins.items():
        rows.append([name, origin["fingerprint"]])
        for section in ("inputs", "config", "results"):
            rows += _values(f"{name}, {section}", origin[section])
    return Table(["What", "Value"], rows, left=2)


def _values(label, values):
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()}
    return [[f"{label}: {key}", text.shown(value)] for key, value in sorted(texts.items())]
