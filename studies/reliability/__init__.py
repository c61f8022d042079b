"""Attacks on metricgrad, kept and run again: damaged files, kills, hostile texts and servers, many fits."""
