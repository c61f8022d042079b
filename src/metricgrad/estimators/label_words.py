"""Words that label cells and classes as yes or no."""

YES = ("yes", "true", "y", "t", "on")
NO = ("no", "false", "n", "f", "off")
