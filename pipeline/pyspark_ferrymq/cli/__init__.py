"""``ferrymq pipeline``: the pipelines that come with the data source, as commands.

Importing this package does not import Spark: a command does so when it runs.
"""

from __future__ import annotations

import typer

from pyspark_ferrymq.cli.archive import archive
from pyspark_ferrymq.cli.metrics import metrics
from pyspark_ferrymq.cli.produce import produce
from pyspark_ferrymq.cli.replay import replay
from pyspark_ferrymq.cli.security_options import take_options
from pyspark_ferrymq.cli.triage import triage
from pyspark_ferrymq.cli.work import work

app = typer.Typer(
    name="pipeline",
    help="Run pipelines on Spark: measure, archive and replay streams; sort dead letters.",
    no_args_is_help=True,
)
app.callback()(take_options)
app.command()(produce)
app.command()(work)
app.command()(metrics)
app.command()(triage)
app.command()(archive)
app.command()(replay)
