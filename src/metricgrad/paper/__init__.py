"""The 2019 paper made again; nothing outside of it and of the command imports it."""
