"""The table of pretrained/README.md: the shipped checkpoints on their evaluation split, beside the paper's.

    python analysis/shipped.py OUT [--device cpu]

Evaluates every checkpoint in pretrained/ on valid.jsonl.zst (losses are kept in OUT, so a second run is
quick), compares each with attention at several thresholds, writes the table into pretrained/README.md between
its two marks, and the recall and gap curves of all runs into pretrained/curves-*.png.
"""

import argparse
import shutil
from pathlib import Path

import recallgap as rg
from recallgap.corpus import BuildConfig
from recallgap.evaluate import EvaluateConfig
from recallgap.models.small_recipes import SMALL_RECIPES
from recallgap.recall import LabelConfig
from recallgap.report import text
from recallgap.report.curve_page import write_curves
from recallgap.report.curves import open_curves

PRETRAINED = Path(__file__).parents[1] / "pretrained"
THRESHOLDS = (
    ("9 (the paper's rate, 0.125 per million)", {"max_train_count": 9}),
    ("100", {"max_train_count": 100}),
    ("1250 (the paper's count)", {"max_train_count": 1250}),
)
BEGIN, END = "<!-- table: analysis/shipped.py -->\n", "<!-- end of table -->\n"
CONTEXT_LEN = 512


def checkpoints():
    """Folders of the shipped checkpoints, the baseline first."""
    return [PRETRAINED / name for name in SMALL_RECIPES if (PRETRAINED / name / "model.safetensors").exists()]


def rows_at(what, thresholds, losses, corpus, counts, out):
    """Lines of the table at one threshold."""
    labels = rg.label(
        corpus,
        counts,
        out / f"labels-{thresholds['max_train_count']}",
        config=LabelConfig(context_len=CONTEXT_LEN, **thresholds),
    )
    gap = rg.compare(losses[0], losses[1:], labels)
    share_of_tokens = text.percent(gap.table()[0]["ar_token_share"])
    yield f"| **at most {what}: {share_of_tokens} of tokens** | | | | | | |"
    for row in gap.table():
        cells = [row["model"], text.compact(row["n_parameters"])]
        cells += [brief(text.perplexity(row[name])) for name in ("overall", "ar_hit", "other")]
        if row["gap"] is None:
            cells += ["-", "-"]
        else:
            cells += [brief(text.gap(row["gap"])), brief(text.share(row["ar_hit_share"], cap=False))]
        yield f"| {' | '.join(cells)} |"


def brief(cell):
    """A cell in one line."""
    return " ".join(cell.split())


def table(out, device):
    """The whole table, markdown."""
    folders = checkpoints()
    tokenizer = str(folders[0] / "tokenizer.json")
    build = BuildConfig(tokenizer=tokenizer, separator="<|endoftext|>")
    corpus = rg.build_corpus([PRETRAINED / "minipile" / "valid.jsonl.zst"], out / "corpus", config=build)
    counts = rg.open_counts(PRETRAINED / "minipile" / "counts")
    config = EvaluateConfig(context_len=CONTEXT_LEN, device=device)
    losses = [rg.evaluate(str(f), corpus, out / f"losses-{f.name}", config=config).path for f in folders]
    lines = [
        "| model | parameters | all | AR hits | other | gap (nats) | share due to AR hits |",
        "|---|---|---|---|---|---|---|",
    ]
    for what, thresholds in THRESHOLDS:
        lines += rows_at(what, thresholds, losses, corpus, counts, out)
    return "\n".join(lines) + "\n"


def draw_curves(out):
    """Recall and gap of all runs by tokens seen."""
    write_curves(open_curves(checkpoints()), out / "curves", overwrite=True)
    for name in ("recall-curve", "gap-curve"):
        shutil.copyfile(out / "curves" / f"{name}.png", PRETRAINED / f"{name}.png")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    readme = PRETRAINED / "README.md"
    before, _, rest = readme.read_text().partition(BEGIN)
    made = table(args.out, args.device)
    readme.write_text(before + BEGIN + "\n" + made + "\n" + END + rest.partition(END)[2])
    draw_curves(args.out)
    print(made)


if __name__ == "__main__":
    main()
