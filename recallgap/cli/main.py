"""The `recallgap` command: one file a verb; a user's mistake prints one message and exits with 2."""

import sys

import typer

from recallgap.cli import ar, compare, corpus, count, demo, evaluate, info, label, merge, model, report
from recallgap.cli import list as listing
from recallgap.errors import RecallGapError

app = typer.Typer(
    name="recallgap",
    help="Measures where one language model loses to another on real text.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("info")(info.info)
app.command("list")(listing.list_)
app.command("count")(count.count)
app.command("merge")(merge.merge)
app.command("label")(label.label)
app.command("evaluate")(evaluate.evaluate)
app.command("compare")(compare.compare)
app.command("report")(report.report)
app.command("ar")(ar.ar)
app.command("demo")(demo.demo)
app.command("model")(model.model)
app.add_typer(corpus.app, name="corpus")


def main():
    """Entry point of the console script."""
    try:
        app()
    except RecallGapError as error:
        _exit(str(error))
    except (PermissionError, NotADirectoryError, IsADirectoryError) as error:
        _exit(f"reading or writing '{error.filename}': {error.strerror}; check the path and its permissions")


def _exit(message):
    print(f"recallgap: {message}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    main()
