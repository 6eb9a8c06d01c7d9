"""Makes Python on Linux behave like Python on Windows where programs that were written on Linux break.

Python imports this file by itself when it starts, in every process whose PYTHONPATH names this folder. Tailwise finds
no POSIX modules, functions and signals: other packages, which have a Windows version of their own, still do. Processes
start by `spawn`, and files behave as on Windows: no open folders, no links, no reserved names, and an open file can
neither be removed nor renamed.
"""

from __future__ import annotations

import asyncio
import builtins
import errno
import multiprocessing.context
import os
import re
import shutil
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, NoReturn

Path = str | bytes

NO_MODULES = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"}
NO_FUNCTIONS = (
    "O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "WNOHANG", "chown", "chroot", "fchmod", "fchown", "fork",
    "forkpty", "fstatvfs", "getegid", "geteuid", "getgid", "getgroups", "getloadavg", "getpgid", "getpgrp", "getuid",
    "killpg", "lchown", "mkfifo", "mknod", "nice", "posix_fadvise", "posix_fallocate", "posix_spawn", "pread",
    "preadv", "process_cpu_count", "pwrite", "pwritev", "register_at_fork", "sched_getaffinity", "sched_setaffinity",
    "sched_yield", "sendfile", "setpgid", "setpriority", "setsid", "statvfs", "sync", "sysconf", "uname", "wait",
)  # fmt: skip
NO_SIGNALS = (
    "SIGALRM", "SIGCHLD", "SIGCONT", "SIGHUP", "SIGKILL", "SIGPIPE", "SIGQUIT", "SIGSTOP", "SIGTSTP", "SIGUSR1",
    "SIGUSR2", "alarm", "pthread_kill", "pthread_sigmask", "setitimer", "sigwait",
)  # fmt: skip
RESERVED = re.compile(r'(con|prn|aux|nul|com\d|lpt\d)(\..*)?|.*[<>:"|?*\\\x00-\x1f].*|.*[. ]', re.IGNORECASE)
_here = threading.local()
_python_import, _python_kill = builtins.__import__, os.kill


def _is_ours(name: object) -> bool:
    return isinstance(name, str) and (name.partition(".")[0] == "tailwise" or name in ("__main__", "__mp_main__"))


def _import(
    name: str, globals: Mapping[str, object] | None = None, locals: Mapping[str, object] | None = None,
    fromlist: Sequence[str] | None = (), level: int = 0,
) -> ModuleType:  # fmt: skip
    if name in NO_MODULES and level == 0 and _is_ours((globals or {}).get("__name__")):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    return _python_import(name, globals, locals, fromlist or (), level)


def _hide(module: ModuleType, names: Sequence[str]) -> None:
    """Take names out of a module for Tailwise; Python asks `__getattr__` for what a module does not have."""
    kept = {name: module.__dict__.pop(name) for name in names if name in module.__dict__}

    def lookup(name: str) -> object:
        if name not in kept or _is_ours(sys._getframe(1).f_globals.get("__name__")):
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
        return kept[name]

    module.__getattr__ = lookup  # type: ignore[method-assign]


def _only_spawn() -> None:
    contexts = multiprocessing.context._concrete_contexts  # type: ignore[attr-defined]
    for name in ("fork", "forkserver"):
        contexts.pop(name, None)
    multiprocessing.set_start_method("spawn", force=True)


def _not_there(*_: object) -> NoReturn:
    raise NotImplementedError


def _kill(pid: int, number: int) -> None:
    assert number != 0, "os.kill(pid, 0) ends the process on Windows"
    _python_kill(pid, number)


def _file_system(event: str, arguments: tuple[Any, ...]) -> None:
    """An audit hook: what it raises, the call raises."""
    check = _CHECKS.get(event)
    if check is None or getattr(_here, "checking", False):
        return
    _here.checking = True
    try:
        check(*arguments)
    finally:
        _here.checking = False


def _check_open(path: object, mode: object, flags: int) -> None:
    if not isinstance(path, str | bytes):
        return
    place = os.fsdecode(path)
    if place.startswith(("/proc/", "/dev/", "/sys/")):
        return
    nameless = flags & os.O_TMPFILE == os.O_TMPFILE  # a temporary file, which Windows makes another way
    if mode is None and not nameless and os.path.isdir(place):  # noqa: PTH112 - Path would be slower, for every file that Python opens
        raise PermissionError(errno.EACCES, "a folder cannot be opened on Windows", place)
    if flags & os.O_CREAT:
        _check_name(place)


def _check_name(path: Path, *_: object) -> None:
    name = os.path.basename(os.fsdecode(path).rstrip("/"))  # noqa: PTH119 - as above
    if RESERVED.fullmatch(name):
        raise OSError(errno.EINVAL, "not a file name on Windows", os.fsdecode(path))


def _check_closed(path: Path, *_: object) -> None:
    """Files that this process has open, itself or below a folder that is moved."""
    place = os.path.realpath(os.fsdecode(path))
    for descriptor in os.listdir("/proc/self/fd"):  # noqa: PTH208 - as above
        try:
            file = os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115 - as above
        except OSError:
            continue
        if file == place or file.startswith(f"{place}/"):
            raise PermissionError(errno.EACCES, "an open file cannot be removed or renamed on Windows", place)


def _check_rename(source: Path, target: Path, *_: object) -> None:
    _check_closed(source)
    _check_name(target)
    if os.path.isdir(target):  # noqa: PTH112 - as above
        raise PermissionError(errno.EACCES, "nothing can be renamed over a folder on Windows", target)
    _check_closed(target)


def _check_link(*_: object) -> NoReturn:
    raise OSError(errno.EPERM, "a required privilege is not held by the client")


_CHECKS: dict[str, Any] = {
    "open": _check_open, "os.mkdir": _check_name, "os.remove": _check_closed, "os.rename": _check_rename,
    "os.rmdir": _check_closed, "os.symlink": _check_link,
}  # fmt: skip

if __name__ == "sitecustomize":  # not where a tool that reads all files imports it
    builtins.__import__ = _import
    _hide(os, NO_FUNCTIONS)
    _hide(signal, NO_SIGNALS)
    _only_spawn()
    os.kill = _kill
    shutil._use_fd_functions = False  # type: ignore[attr-defined]
    asyncio.unix_events._UnixSelectorEventLoop.add_signal_handler = _not_there  # type: ignore[attr-defined]
    sys.addaudithook(_file_system)
