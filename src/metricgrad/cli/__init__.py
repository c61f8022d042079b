"""The command; the only place that prints."""
