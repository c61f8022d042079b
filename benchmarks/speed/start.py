"""Processor time until the command answers and until a loss is ready: python -m benchmarks.speed.start

Every contestant is a process of its own, and its times include those of Python. What a loss takes beyond
`import torch` is compared with 0.2 s, what help takes with 0.3 s; both depend on the machine, which is named.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from functools import partial

from benchmarks.speed.measuring import claim, in_turns, middle, parser_of, self_timed, spread, store

HELP_SECONDS, LOSS_SECONDS = 0.3, 0.2
CONTESTANTS = {
    "python": ("-c", "pass"),
    "metricgrad --help": ("-m", "metricgrad", "--help"),
    "metricgrad fit --help": ("-m", "metricgrad", "fit", "--help"),
    "import torch": ("-c", "import torch"),
    'SurrogateLoss("f1")': ("-c", 'import metricgrad; metricgrad.SurrogateLoss("f1")'),
    "import sklearn.linear_model": ("-c", "import sklearn.linear_model"),
    'MetricClassifier("f1")': ("-c", 'import metricgrad; metricgrad.MetricClassifier("f1")'),
}


def processor_seconds_of(arguments: tuple[str, ...]) -> float:
    """Return the user and system time of a Python process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    asked = parser_of(__doc__, repeats=7).parse_args()
    contestants = {name: partial(processor_seconds_of, arguments) for name, arguments in CONTESTANTS.items()}
    times = in_turns(contestants, asked.repeats, timed=self_timed)
    beyond = [own - bare for own, bare in zip(times['SurrogateLoss("f1")'], times["import torch"], strict=True)]
    claims = [
        claim(
            f"metricgrad --help, in units of {HELP_SECONDS} s",
            spread([own / HELP_SECONDS for own in times["metricgrad --help"]]),
            at_most=1,
        ),
        claim(
            f'SurrogateLoss("f1") beyond import torch, in units of {LOSS_SECONDS} s',
            spread([own / LOSS_SECONDS for own in beyond]),
            at_most=1,
        ),
    ]
    return 1 if store("start", claims, asked.folder, seconds=middle(times)) else 0


if __name__ == "__main__":
    raise SystemExit(main())
