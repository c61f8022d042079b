"""`python -m metricgrad` is the command `metricgrad`."""

from metricgrad.cli import app

app(prog_name="metricgrad")
