"""The learned loss, Eq. 2 to 5 of the paper."""
