"""The one device of a process: its contexts, the handles of everything that a client made, and sticky errors."""

from __future__ import annotations

import os
import threading
from collections import deque
from itertools import count
from typing import Any, TypeVar

from nbtc.errors import NbtcError
from nbtc.libcuda import host
from nbtc.libcuda.arena import reserve
from nbtc.libcuda.direct import words
from nbtc.libcuda.errors import INVALID_CONTEXT, INVALID_DEVICE, INVALID_HANDLE, NOT_INITIALIZED, CudaError, say

CHUNK = 1 << 26  # bytes of address space that handles are taken from
BLOCK = 256  # bytes of zeros that a handle leads to, into which some clients look
IDLE_BLOCKS = 4096  # how many handles are destroyed before the first is used again: a stale one is known as such
Kind = TypeVar("Kind")
numbers = count(1)


class Handles:
    """Objects by the addresses that clients know them by."""

    def __init__(self) -> None:
        self.objects: dict[int, Any] = {}
        self._idle: deque[int] = deque()
        self._next = self._end = 0

    def add(self, x: Any) -> int:
        """A handle for an object."""
        if len(self._idle) > IDLE_BLOCKS:
            at = self._idle.popleft()
        else:
            at = self.buffer(BLOCK)
        self.objects[at] = x
        return at

    def buffer(self, size: int) -> int:
        """Memory that clients may read and no function writes to, for ever."""
        if self._next + size > self._end:
            length = max(CHUNK, size)
            self._next, length = reserve(length)
            self._end = self._next + length
            host.guard(self._next, self._end, lambda at, size: False)
            if not words.guard(self._next, self._end):  # compiled calls would read what they must not
                words.words.address = 0
        at = self._next
        self._next += -(-size // 16) * 16
        return at

    def get(self, at: int, kind: type[Kind]) -> Kind:
        """The object of a handle."""
        x = self.objects.get(at)
        if not isinstance(x, kind):
            raise CudaError(INVALID_HANDLE)
        return x

    def drop(self, at: int) -> None:
        """Forget an object; its block stays, since stale handles must not crash those who look into them."""
        x = self.objects.pop(at, None)
        if x is not None:
            self._idle.append(at)
            if getattr(x, "remembered", False):
                words.changed()


handles = Handles()


class Context:
    """A context: what it owns ends with it; a kernel's fault makes it unusable."""

    remembered = True  # compiled calls know its handle

    def __init__(self) -> None:
        self.id, self.flags, self.failure = next(numbers), 0, 0
        self.limits: dict[int, int] = {}
        self.owned: dict[int, Any] = {}  # handles of modules, streams, events, with how each is given back
        self.retained = 0
        self.handle = handles.add(self)


primary = Context()
_stacks: dict[int, list[Context]] = {}  # by thread: local data of threads that C made last for one call only
_process = [os.getpid()]
initialised = False


def initialise() -> None:
    """`cuInit`; a forked child has no driver, as on a GPU."""
    global initialised
    same_process()
    arch_name()
    initialised = True


def fail(context: Context, code: int) -> None:
    """A kernel's fault."""
    context.failure = code
    words.changed()


def same_process() -> None:
    """Refuse what a forked child asks: threads and locks of its parent are gone."""
    if os.getpid() != _process[0]:
        say("a forked process has no CUDA driver: start processes that use CUDA with spawn", once=True)
        raise CudaError(NOT_INITIALIZED)


def stack() -> list[Context]:
    """The calling thread's contexts, the current one last."""
    ident = threading.get_ident()
    found = _stacks.get(ident)
    if found is None:
        found = _stacks[ident] = []
    return found


def current() -> Context:
    """The calling thread's context, if nothing is wrong with it."""
    if os.getpid() != _process[0]:
        same_process()
    found = _stacks.get(threading.get_ident())
    if not found:
        raise CudaError(INVALID_CONTEXT if initialised else NOT_INITIALIZED)
    context = found[-1]
    if context.failure:
        raise CudaError(context.failure)
    return context


def current_or_none() -> Context | None:
    """The calling thread's context, whatever its state."""
    found = stack()
    return found[-1] if found else None


def use_primary() -> None:
    """What the runtime does before anything else: a thread without a context gets the device's own."""
    found = stack()
    if not found:
        initialise()
        primary.retained = max(primary.retained, 1)
        found.append(primary)


def of_handle(handle: int) -> Context:
    """A context by its handle; 0 is the current one."""
    if handle:
        return handles.get(handle, Context)
    found = current_or_none()
    if found is None:
        raise CudaError(INVALID_CONTEXT)
    return found


def device(number: int) -> None:
    """Refuse every device but the one there is."""
    if not initialised:
        raise CudaError(NOT_INITIALIZED)
    if number:
        raise CudaError(INVALID_DEVICE)


def own(x: Any, end: Any) -> int:
    """A handle for an object of the current context, and what ends it with the context."""
    handle = handles.add(x)
    found = current_or_none()
    if found is not None:
        found.owned[handle] = end
        x.context = found
    return handle


def disown(handle: int) -> None:
    """The object of a handle is given back."""
    x = handles.objects.get(handle)
    context = getattr(x, "context", None)
    if context is not None:
        context.owned.pop(handle, None)
    handles.drop(handle)


def end(context: Context) -> None:
    """Give back everything that a context owns."""
    for handle, ends in list(context.owned.items()):
        ends(handle)
    context.owned.clear()
    context.limits.clear()
    context.failure = 0
    words.changed()


def arch_name() -> str:
    """NBTC_ARCH: a GPU or an architecture; by default an H100's."""
    return processor().arch


class Processor:
    """The device's facts."""

    def __init__(self, name: str) -> None:
        from nbtc.isa.archs import arch
        from nbtc.libcuda.facts import facts

        self.facts = facts(name)
        row = arch(self.facts.arch)
        self.arch, self.number = row.name, row.number


_processor: list[Processor] = []


def processor() -> Processor:
    """The device, chosen by the environment when it is first asked for."""
    if not _processor:
        try:
            _processor.append(Processor(os.environ.get("NBTC_ARCH") or "sm_90"))
        except NbtcError as error:
            say(f"NBTC_ARCH: {error}", once=True)
            raise CudaError(INVALID_DEVICE) from error
    return _processor[0]
