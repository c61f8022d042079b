"""`python -m metricgrad` is the command `metricgrad`."""

from metricgrad.cli.app import app

app(prog_name="metricgrad")
