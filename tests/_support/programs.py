"""Programs of the examples as a user starts them: in processes of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

FRAMEWORKS = Path(__file__).parents[2] / "examples" / "frameworks"
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def run_framework(name: str, *launcher: str, least: float) -> str:
    """Run an example of a framework, check what it reaches on unseen rows, and return all that it prints."""
    words = [sys.executable, *launcher, str(FRAMEWORKS / f"{name}.py")]
    settings = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    settings["RAY_raylet_start_wait_time_s"] = "300"  # half a minute is too little where other tests run
    done = subprocess.run(words, env=os.environ | settings, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (value,) = re.findall(r"^AP ([\d.]+) on unseen rows", done.stdout, re.MULTILINE)
    assert float(value) > least
    return done.stdout
