"""Provenance: the code, date and package versions by which a number or a model was made."""

from __future__ import annotations

import platform
import subprocess
from datetime import datetime, timezone
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

from metricgrad._version import __version__

PACKAGES = ("torch", "numpy", "scikit-learn")
GIT_SECONDS = 5.0
"""Timeout for git."""


@lru_cache(maxsize=1)
def provenance() -> dict[str, str]:
    """Return version, commit, date, Python and package versions."""
    return {
        "metricgrad": __version__,
        "commit": _commit(),
        "date": datetime.now(timezone.utc).date().isoformat(),
        "python": platform.python_version(),
        **{package: version(package) for package in PACKAGES},
    }


def _commit() -> str:
    """Return the commit of the source tree; empty if there is none or git does not answer."""
    try:
        done = subprocess.run(
            ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=12"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=GIT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):  # no git, or one that hangs
        return ""
    return done.stdout.strip()
