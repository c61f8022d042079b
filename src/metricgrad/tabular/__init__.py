"""A user's own table: read, encode, fit, save, predict."""
