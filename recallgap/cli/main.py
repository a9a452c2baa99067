"""The `recallgap` command: one file a verb; a user's mistake prints one message and exits with 2."""

import sys

import typer

from recallgap.cli import info
from recallgap.errors import RecallGapError

app = typer.Typer(
    name="recallgap",
    help="Measures where one language model loses to another on real text.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("info")(info.info)


def main():
    """Entry point of the console script."""
    try:
        app()
    except RecallGapError as error:
        print(f"recallgap: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
