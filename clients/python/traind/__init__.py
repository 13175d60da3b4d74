"""What a program that traind runs as `kind: command` says to it, and is told.

    import traind

    traind.init()
    start = traind.resume_from()          # path of the last registered checkpoint, or None
    for step in range(...):
        ...
        traind.log({"loss": loss}, step=step)
        if traind.should_stop():
            save(path)
            traind.register_checkpoint(path, step=step, loss=loss)
            break

Outside of a traind job every call does nothing, and should_stop() is False. No call waits for
traind: a message for which there is no room is dropped, and dropped() counts it. No dependencies.
docs/commands.md describes what is written on the descriptor. One thread at a time may call.
"""

import json
import math
import os
import signal
import socket
import sys
import threading

__all__ = ["init", "log", "should_stop", "should_save", "register_checkpoint", "resume_from", "note",
           "port_in_use", "dropped", "active"]

PORT_IN_USE = 98  # exit code: traind tries another MASTER_PORT, at no cost to the restart budget
MESSAGE_MAX = 48 << 10

_socket = None
_tried = False
_stop = None
_save = False
_dropped = 0


def init(handle_sigterm=True):
    """Connects to traind; True inside of a traind job. Other calls do it, too.

    A stop comes with SIGTERM. With handle_sigterm it no longer ends the program, but makes
    should_stop() True, if nobody else handles it and this is the main thread: a program that never
    asks should_stop() passes False.
    """
    connected = _connect()
    if connected and handle_sigterm and threading.current_thread() is threading.main_thread():
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, _on_sigterm)
    return connected


def active():
    """True: this program runs in a traind job that can be talked to."""
    return _connect()


def log(metrics, step=None, epoch=None, total_steps=None, samples=None):
    """Records numbers by name (at most 63 bytes each) at a step, and how far the program is.

    A value that is logged again at its step replaces the first, until that name comes at another
    step or 1 s has passed; later ones are dropped. Without step it is the last one that was given.
    metrics may be {}: the step alone is progress, and shows that the program lives. samples counts
    from the start of this attempt, on this rank. Of an epoch, 2.7 is 2.
    """
    # What a script says itself a Trainer of Hugging Face need not say, too: it looks at this each time.
    if _connect() and os.environ.get("KUBEFLOW_TRAINER_SERVER_URL", "").startswith("http://127.0.0.1:"):
        del os.environ["KUBEFLOW_TRAINER_SERVER_URL"]
    message = {"metrics": {str(name): _number(value) for name, value in metrics.items()}}
    if epoch is not None:
        message["epoch"] = _integer(float(epoch) // 1)  # Hugging Face's state.epoch has a fraction
    for key, value in (("step", step), ("total_steps", total_steps), ("samples", samples)):
        if value is not None:
            message[key] = _integer(value)
    _send(message)


def should_stop():
    """True once traind asked this program to stop: save, register the checkpoint, and exit with 0."""
    _receive()
    return _stop is not None


def should_save():
    """True once for each time that somebody asked for a checkpoint (`trainctl checkpoint create`)."""
    global _save
    _receive()
    asked, _save = _save, False
    return asked


def register_checkpoint(path, step, epoch=None, **metrics):
    """Names a file or directory that is whole on disk; the next attempt finds it in resume_from().

    One rank does it, after all have written. traind keeps the path, and never removes what it names.
    """
    path = os.path.abspath(os.fspath(path))
    if not os.path.exists(path):
        raise FileNotFoundError(f"checkpoint {path!r} is not there; write it before it is registered")
    checkpoint = {"path": path, "step": int(step),
                  "metrics": {str(name): _number(value) for name, value in metrics.items()}}
    if epoch is not None:
        checkpoint["epoch"] = int(epoch)
    if not _send({"checkpoint": checkpoint}, wait=10.0) and _socket is not None:
        raise OSError(f"checkpoint {path!r} could not be registered: traind does not read")


def resume_from():
    """Path of the checkpoint to go on from, or None."""
    return os.environ.get("TRAIND_RESUME_FROM") or None


def note(text):
    """Leaves a line for people in the job's notes (`trainctl describe`)."""
    _send({"note": str(text)})


def port_in_use():
    """Ends the program: its MASTER_PORT is taken. traind starts another attempt with another one."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(PORT_IN_USE)


def dropped():
    """How many messages were dropped, because traind did not read in time."""
    return _dropped


def _connect():
    global _socket, _tried
    if not _tried:
        _tried = True
        try:
            _socket = socket.socket(fileno=os.dup(int(os.environ["TRAIND_FD"])))
            if _socket.type != socket.SOCK_SEQPACKET:  # inherited from elsewhere, not traind's
                _socket = None
        except (KeyError, ValueError, OSError):
            _socket = None
    return _socket is not None


def _on_sigterm(signum, frame):
    global _stop
    _stop = _stop or "checkpoint"


def _number(value):
    value = float(value)
    return value if math.isfinite(value) else str(value)  # JSON has no such numbers: "nan", "inf", "-inf"


def _integer(value):
    """3.5 stays 3.5, which traind refuses with a note: it is nobody's step."""
    number = _number(value)
    return number if isinstance(number, str) or number != int(value) else int(value)


def _send(message, wait=0.0):
    global _dropped, _socket
    if not _connect():
        return False
    data = json.dumps(message).encode() + b"\n"
    if len(data) > MESSAGE_MAX:
        raise ValueError(f"a message to traind has {len(data)} bytes, at most {MESSAGE_MAX} are taken")
    try:
        _socket.settimeout(wait)
        _socket.send(data)
        return True
    except (BlockingIOError, TimeoutError, socket.timeout):
        _dropped += 1
    except OSError:  # traind's launcher is gone, and this program will follow
        _socket = None
    return False


def _receive():
    global _stop, _save, _socket
    while _connect():
        try:
            _socket.settimeout(0.0)  # a send may have left another one
            data = _socket.recv(4096)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            _socket = None
            return
        for line in data.splitlines():
            told = json.loads(line)
            _stop = told.get("stop", _stop)
            _save = told.get("save", False) or _save
