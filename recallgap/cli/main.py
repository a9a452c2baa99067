"""The `recallgap` command: one file a verb; a user's mistake prints one message and exits with 2."""

import os
import sys
from typing import Annotated

import typer

import recallgap
from recallgap.cli import (
    ar,
    compare,
    corpus,
    count,
    demo,
    evaluate,
    info,
    label,
    merge,
    model,
    mqar,
    pretrain,
    report,
    sweep,
    theory,
)
from recallgap.cli import list as listing
from recallgap.errors import RecallGapError

app = typer.Typer(
    name="recallgap",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool):
    if wanted:
        print(f"recallgap {recallgap.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
):
    """Measures where one language model loses to another on real text."""


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
app.command("pretrain")(pretrain.pretrain)
app.command("sweep")(sweep.sweep)
app.add_typer(corpus.app, name="corpus")
app.add_typer(mqar.app, name="mqar")
app.add_typer(theory.app, name="theory")


ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": "4294967296", "MALLOC_TRIM_THRESHOLD_": "68719476736"}
"""glibc gives large blocks back to the system and takes them anew at each operation, unless told otherwise
before the program starts: a training step on a CPU is up to 5 times slower (docs/lab-notes.md)."""
TRAINING = ("pretrain", "sweep", "mqar")


def main():
    """Entry point of the console script."""
    _keep_memory()
    try:
        app()
    except RecallGapError as error:
        _exit(str(error))
    except (PermissionError, NotADirectoryError, IsADirectoryError) as error:
        _exit(f"reading or writing '{error.filename}': {error.strerror}; check the path and its permissions")


def _keep_memory():
    """Start anew with ALLOCATOR in the environment, where a command trains and the user has not set it."""
    if sys.argv[1:2] and sys.argv[1] in TRAINING and not ALLOCATOR.keys() & os.environ.keys():
        os.environ.update(ALLOCATOR)
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _exit(message):
    print(f"recallgap: {message}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    main()
