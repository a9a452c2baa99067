"""recallgap mqar: synthetic associative recall, data and sweeps; each verb has a file of its own."""

import typer

from recallgap.cli import mqar_data, mqar_sweep

app = typer.Typer(no_args_is_help=True, help="Multi-query associative recall: data, and sweeps of models.")
app.command("data")(mqar_data.data)
app.command("sweep")(mqar_sweep.sweep)
