"""What a program writes to a terminal: a real one (a pty), of any size."""
import contextlib
import fcntl
import os
import pty
import struct
import subprocess
import termios
import tty

from support import BIN


def resize(terminal, columns, rows=24):
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


@contextlib.contextmanager
def terminal(columns, rows=24, raw=True):
    """Our end and theirs. raw: bytes come as they were written, without a carriage return at the end of a line."""
    ours, theirs = pty.openpty()
    if raw:
        tty.setraw(theirs)
    resize(theirs, columns, rows)
    try:
        yield ours, theirs
    finally:
        os.close(ours)
        with contextlib.suppress(OSError):
            os.close(theirs)


def read_all(ours):
    seen = b""
    with contextlib.suppress(OSError):  # EIO: the last writer is gone
        while part := os.read(ours, 65536):
            seen += part
    return seen


def on_terminal(daemon, *args, columns=80, rows=24, raw=True, exits=(0,), **env):
    """The bytes that trainctl writes to a terminal of its own."""
    env = {**daemon.env, "TRAIND_STATE_DIR": str(daemon.state_dir), **env}
    with terminal(columns, rows, raw) as (ours, theirs):
        ran = subprocess.Popen([BIN / "trainctl", *args], stdin=theirs, stdout=theirs, stderr=theirs, env=env)
        os.close(theirs)
        seen = read_all(ours)
        assert ran.wait(30) in exits, seen
    return seen
