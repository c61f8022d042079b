"""Windows and macOS: nothing in the package needs a name that only Linux has, at import or without asking first."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "metricgrad"
FILES = sorted(path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py"))
POSIX_MODULES = {"fcntl", "grp", "posix", "pty", "pwd", "readline", "resource", "syslog", "termios", "tty"}
POSIX_NAMES = {
    "os": "O_NOFOLLOW WNOHANG chown chroot confstr copy_file_range ctermid eventfd fchmod fchown fork forkpty getegid "
    "geteuid getgid getgroups getloadavg getpgid getpgrp getpriority getresgid getresuid getsid getuid initgroups "
    "killpg lchown lockf major makedev memfd_create minor mkfifo mknod nice openpty pipe2 posix_fadvise "
    "posix_fallocate posix_spawn posix_spawnp pread preadv pwrite pwritev register_at_fork sched_getaffinity "
    "sched_getscheduler sched_setaffinity sched_setscheduler sched_yield sendfile setegid seteuid setgid setpgid "
    "setpriority setsid setuid statvfs sync sysconf tcgetpgrp tcsetpgrp ttyname uname wait wait3 wait4 waitid",
    "signal": "ITIMER_REAL SIGALRM SIGCHLD SIGCONT SIGHUP SIGKILL SIGPIPE SIGQUIT SIGSTOP SIGTSTP SIGUSR1 SIGUSR2 "
    "alarm getitimer pause pthread_kill pthread_sigmask setitimer siginterrupt sigpending sigtimedwait sigwait",
    "time": "clock_settime pthread_getcpuclockid tzset",
    "socket": "AF_PACKET SO_REUSEPORT",
}

IMPORT_ALL = """
import importlib, sys, types

modules, hidden = sys.argv[1].split(), sys.argv[2].split()
for name in modules:  # what is imported from elsewhere stays: those packages have ways of their own on Windows
    importlib.import_module(f"metricgrad.{name}")
for name in [name for name in sys.modules if name.partition(".")[0] == "metricgrad"]:
    del sys.modules[name]
sys.platform = "win32"
sys.modules.update(dict.fromkeys(hidden), msvcrt=types.ModuleType("msvcrt"))
for name in modules:
    importlib.import_module(f"metricgrad.{name}")
print(sum(name.startswith("metricgrad.") for name in sys.modules))
"""


def test_every_module_is_imported_where_the_modules_of_posix_are_missing() -> None:
    names = [name.removesuffix(".py").replace("/", ".") for name in FILES if not name.endswith("__.py")]
    assert len(names) > 80
    code = [sys.executable, "-c", IMPORT_ALL, " ".join(names), " ".join(sorted(POSIX_MODULES))]
    done = subprocess.run(code, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= len(names)


# ---- names used without asking first -------------------------------------------------------------------------------


def unguarded(source: str) -> list[str]:
    """Name the modules and names of POSIX that some code uses without asking whether they are there."""
    tree = ast.parse(source)
    aliases = {
        alias.asname or alias.name: alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    return list(_uses(tree, aliases))


def _uses(node: ast.AST, aliases: dict[str, str]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name.partition(".")[0] in POSIX_MODULES)
    elif isinstance(node, ast.ImportFrom) and node.module in POSIX_MODULES:
        yield node.module
    elif isinstance(node, ast.ImportFrom) and node.module in POSIX_NAMES:
        known = POSIX_NAMES[node.module].split()
        yield from (f"{node.module}.{alias.name}" for alias in node.names if alias.name in known)
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        module = aliases.get(node.value.id, "")
        if node.attr in POSIX_NAMES.get(module, "").split():
            yield f"{module}.{node.attr}"
    if not _asks_first(node):
        for child in ast.iter_child_nodes(node):
            yield from _uses(child, aliases)


def _asks_first(node: ast.AST) -> bool:
    """Whether a statement asks for the platform or for the name, or is ready to do without it."""
    if isinstance(node, (ast.If, ast.IfExp)):
        return any(asked in ast.unparse(node.test) for asked in ("sys.platform", "os.name", "hasattr("))
    if isinstance(node, ast.Try):
        caught = [ast.unparse(handler.type) for handler in node.handlers if handler.type]
        return any(error in names for names in caught for error in ("ImportError", "AttributeError"))
    return False


@pytest.mark.parametrize("file", FILES)
def test_no_name_of_posix_is_used_without_asking_for_it(file: str) -> None:
    assert unguarded((SOURCE / file).read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("import fcntl", ["fcntl"]),
        ("def f():\n    from resource import getrusage", ["resource"]),
        ("import os\nos.fork()", ["os.fork"]),
        ("import os as system\nsystem.sched_getaffinity(0)", ["os.sched_getaffinity"]),
        ("from os import getuid", ["os.getuid"]),
        ("import os, signal\nos.kill(1, signal.SIGKILL)", ["signal.SIGKILL"]),
        ("import os, sys\nif sys.platform == 'linux':\n    os.fork()\nos.getuid()", ["os.getuid"]),
        ("import os\nn = len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else 1", []),
        ("try:\n    import fcntl\nexcept ImportError:\n    fcntl = None", []),
        ("try:\n    import fcntl\nexcept ValueError:\n    pass", ["fcntl"]),
        ("import os\nos.getpid()", []),
    ],
)
def test_the_check_finds_what_is_not_asked_for_and_nothing_else(code: str, found: list[str]) -> None:
    assert unguarded(code) == found


@pytest.mark.skipif(sys.platform != "linux", reason="compares the list with what Linux has")
def test_the_list_of_names_is_of_names_there_are() -> None:
    for module, names in POSIX_NAMES.items():
        assert set(names.split()) <= set(dir(importlib.import_module(module)))
