"""Processes of tests' own: `fresh` ones, and `forked` ones, which cost a tenth.

Most of a small process's time goes into importing Numba and filling its registries.  A forked one begins after that:
its parent has compiled nothing and has not seen nbtc.  Processes that are about this beginning are fresh, and those
for another processor, whose name Numba asks for once.
"""

from __future__ import annotations

import atexit
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from functools import cache
from types import ModuleType

MESSAGE = 1 << 17  # bytes: code, its arguments and an environment


def environment(changes: dict[str, str]) -> dict[str, str]:
    """This process's environment with changes; a new process finds the nbtc that is tested."""
    import nbtc

    return os.environ | {"PYTHONPATH": os.path.dirname(os.path.dirname(nbtc.__file__))} | changes


def fresh(code: str, *arguments: str, **changes: str) -> subprocess.Popen[str]:
    """A new interpreter that runs `code`; the folder it starts in is not where it looks for modules."""
    command = [sys.executable, "-P", "-W", "error", "-c", code, *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment(changes), stdout=pipe, stderr=pipe, text=True)


class Forked:
    """A child of a `_Parent` that runs `code`: what tests use of `Popen`."""

    def __init__(self, parent: _Parent, code: str, *arguments: str, **changes: str) -> None:
        self.parent, self.returncode = parent, None
        self.stderr = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 (communicate closes it)
        reading, writing = os.pipe()
        self.stdout = os.fdopen(reading, encoding="utf-8")
        request = {"code": code, "arguments": arguments, "environment": environment(changes)}
        self.pid = parent.ask(request, [writing, self.stderr.fileno()])
        os.close(writing)

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def communicate(self, timeout: float) -> tuple[str, str]:
        """What it has written; it is killed when that takes too long."""
        late = threading.Timer(timeout, self.send_signal, (signal.SIGKILL,))
        late.start()
        with self.stdout, self.stderr:
            out = self.stdout.read()
            self.returncode = self.parent.ask({"wait": self.pid})
            late.cancel()
            self.stderr.seek(0)
            return out, self.stderr.read()


class _Parent:
    """An interpreter that waits to be forked; it ends when the other end of its channel is closed."""

    def __init__(self, variables: dict[str, str]) -> None:
        self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command, env = [sys.executable, "-P", "-W", "error", __file__, str(theirs.fileno())], os.environ | variables
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], env=env)
        theirs.close()
        atexit.register(self.close)

    def close(self) -> None:
        self.channel.close()
        self.process.wait()

    def ask(self, request: dict[str, object], descriptors: list[int] = []) -> int:  # noqa: B006 (nobody writes it)
        socket.send_fds(self.channel, [json.dumps(request).encode()], descriptors)
        return int(self.channel.recv(MESSAGE))


@cache
def _parents(*loader: tuple[str, str]) -> itertools.cycle[_Parent]:
    """Two that take turns: forks share their parent's addresses and hashes of text, which nothing may depend on.

    loader: what the dynamic loader is told, which it reads when a program begins: forks have their parent's libraries.
    """
    return itertools.cycle([_Parent(dict(loader)), _Parent(dict(loader))])


def forked(code: str, *arguments: str, **changes: str) -> Forked | subprocess.Popen[str]:
    """A process like a `fresh` one that has imported Numba already."""
    if sys.platform != "linux":
        return fresh(code, *arguments, **changes)
    loader = sorted(x for x in changes.items() if x[0].startswith("LD_"))
    return Forked(next(_parents(*loader)), code, *arguments, **changes)


def output(process: Forked | subprocess.Popen[str], timeout: float = 300) -> str:
    """What a process prints, without the spaces around; it must end well."""
    out, error = process.communicate(timeout=timeout)
    assert process.returncode == 0, f"exit code {process.returncode}: {error[-3000:]}"
    return out.strip()


def _serve(channel: socket.socket) -> str:
    """Fork when asked to: returns in a child, with its code."""
    path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    while True:
        message, descriptors, *_ = socket.recv_fds(channel, MESSAGE, 2)
        if not message:
            channel.close()
            sys.exit()
        request = json.loads(message)
        if "wait" in request:
            _, status = os.waitpid(request["wait"], 0)
            channel.send(str(os.waitstatus_to_exitcode(status)).encode())
        elif child := os.fork():
            channel.send(str(child).encode())
            for descriptor in descriptors:
                os.close(descriptor)
        else:
            channel.close()
            os.dup2(descriptors[0], 1)
            os.dup2(descriptors[1], 2)
            _become(request, path)
            return str(request["code"])


def _become(request: dict[str, object], path: list[str]) -> None:
    """What an interpreter does with its environment and arguments; `path`: where PYTHONPATH has led so far."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(request["environment"])
    config.reload_config()
    sys.path[:] = [*os.environ["PYTHONPATH"].split(os.pathsep), *(p for p in sys.path if p not in path)]
    sys.argv[:] = ["-c", *request["arguments"]]
    sys.modules["__main__"] = ModuleType("__main__")


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the tests, and the channel with them
    from numba.core import config
    from numba.core.registry import cpu_target

    cpu_target.typing_context.refresh()
    cpu_target.target_context.refresh()
    code = _serve(socket.socket(fileno=int(sys.argv[1])))
    exec(compile(code, "<string>", "exec"), vars(sys.modules["__main__"]))
