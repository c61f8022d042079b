"""Methods against each other on any split data."""
