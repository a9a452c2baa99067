"""How many interaction distances do real contexts need? What Theorem H.38's t would be (docs/theory.md).

    python analysis/distances.py LABELS OUT

LABELS: a folder made by `recallgap label`. Prints the table; OUT gets distances.json and distances.png: the
distinct distances of a context, and the share of tokens at one of the t commonest distances of their context.
"""

import argparse
import json
from pathlib import Path

from recallgap.recall import open_labels
from recallgap.report.drawing import COLOURS, MARKERS, legend, log_scale, new_figure, save, with_style
from recallgap.theory.distances import SHIFTS, distances_needed

SHOWN = (1, 4, 16, 64)
SIZE = (9.0, 3.6)


def draw(rows):
    figure, panels = new_figure(*SIZE, 1, 2)
    needed, covered = panels[0]
    for number, row in enumerate(rows):
        style = {"color": COLOURS[number], "marker": MARKERS[number], "label": row["tokens"], "markersize": 4}
        needed.plot(list(row["quantiles"].values()), [100 * q for q in row["quantiles"]], **style)
        covered.plot(SHIFTS, [100 * row["covered"][t] for t in SHIFTS], **style)
    needed.set(
        title="Distances a context needs", xlabel="distinct distances", ylabel="contexts, %, at most so many"
    )
    covered.set(title="What t lags reach", xlabel="t, the commonest distances", ylabel="tokens reached, %")
    log_scale(covered.xaxis)
    for axes in panels[0]:
        axes.set_ylim(0, 103)
    legend(figure, needed)
    return figure


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("labels")
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    labels = open_labels(args.labels)
    rows = distances_needed(labels)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "distances.json").write_text(json.dumps(rows, indent=1) + "\n")
    save(with_style(draw, rows), args.out / "distances.png", "png")
    print(f"{rows[0]['contexts']:,} contexts of at most {labels.config['context_len']} tokens")
    print(f"{'':17} {'tokens':>9} {'mean':>6} {'median':>6} {'99 %':>6} {'most':>6}  reached by t =", *SHOWN)
    for row in rows:
        q = row["quantiles"]
        reached = " ".join(f"{row['covered'][t]:.2%}" for t in SHOWN)
        numbers = f"{row['mean']:6.1f} {q[0.5]:6} {q[0.99]:6} {q[1.0]:6}"
        print(f"{row['tokens']:17} {row['n']:9,} {numbers}  {reached}")


if __name__ == "__main__":
    main()
