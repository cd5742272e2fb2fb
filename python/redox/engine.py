"""The engine process: one for each node, job and data set; it reads, assembles, and owns the memory.

`start` makes one, from any process: by exec, never by fork, so that it has nothing of the process that happens to be
the first. It belongs to no terminal and no process group, has no working directory, imports nothing but this package
and the standard library, and ends by itself when the last training process is gone.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys

from redox.logs import messages

__all__ = ["main", "start", "words_of"]

_BOOT = "import sys; sys.path.insert(0, sys.argv.pop(1)); from redox.engine import main; main()"
_BACKLOG = 1024


def start(name: bytes, about: str) -> int:
    """Start an engine.

    Args:
        name: Of its socket, in the abstract namespace.
        about: For those who list processes.

    Returns:
        A file with what the engine has to say, for its last words.

    Raises:
        OSError: EADDRINUSE: somebody else has the name.
    """
    log = os.memfd_create("redox-engine-log", os.MFD_CLOEXEC)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(b"\0" + name)
            listener.listen(_BACKLOG)
            # Opened anew: files that share an offset would overwrite each other.
            appending = os.open(f"/proc/self/fd/{log}", os.O_RDWR | os.O_APPEND)
            try:
                _launch(listener.fileno(), appending, about)
            finally:
                os.close(appending)
    except BaseException:
        os.close(log)
        raise
    return log


def _launch(listener: int, log: int, about: str) -> None:
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    command = [sys.executable, "-I", "-S", "-c", _BOOT, package, str(listener), str(log), "redox.engine", about]
    subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=log,
        cwd="/",
        pass_fds=(listener, log),
        check=False,  # who connects will see that nobody is there
    )


def main() -> None:
    """Be an engine: `listener log ...` are the arguments."""
    listener, log = int(sys.argv[1]), int(sys.argv[2])
    os.setsid()
    if os.fork():
        os._exit(0)  # so that nobody has to wait for the engine, and it never gets a terminal
    os.dup2(log, 1)
    os.dup2(log, 2)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    from redox import _native

    try:
        _native.engine_serve(listener, {"log_file": log})
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
        os._exit(1)
    os._exit(0)


def words_of(log: int | None) -> str:
    """Return the last lines that an engine wrote, from the file that `start` returned."""
    if log is None:
        return ""
    try:
        size = os.fstat(log).st_size
        text = os.pread(log, 8192, max(0, size - 8192)).decode(errors="replace")
    except OSError:
        return ""
    lines = messages(text)
    start = next((i for i, line in enumerate(lines) if line.startswith(("panic:", "fatal error:"))), len(lines) - 3)
    return "\n".join(lines[max(0, start) : max(0, start) + 3])


if __name__ == "__main__":
    main()
