"""A launch of one geometry to be made again and again by whoever calls compiled code: what to set, what to call."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from nbtc.executor.emit.state import BLOCK, LAUNCH
from nbtc.executor.launch import report
from nbtc.executor.launch.launch import WORKSPACE, LaunchableCode, Request, Session, address_of
from nbtc.executor.launch.services import table
from nbtc.executor.memory.ranges import Memory

MOST_SLOTS = 8  # resident blocks of a worker whose structures are set one by one
MOST_BYTES = 1 << 20  # of a session: each thread keeps its own


class RepeatedLaunch:
    """A session of one worker, and copies of its structures as a launch finds them.

    code: the address of `void (*)(worker)`; parameters: where the arguments' bytes go; failed: the address of a 32-bit
    word that is not 0 after a launch that failed.
    """

    session: Session
    loops: bool
    code: int
    worker: int
    parameters: int
    failed: int

    def __init__(self, name: str, sites: Sequence[Any], code: LaunchableCode, request: Request) -> None:
        self._name, self._sites, self._code, self._request = name, sites, code, request
        self.session = Session(code, request, 1)
        self.loops = code.loops
        self.code = ctypes.cast(code.run, ctypes.c_void_p).value or 0  # type: ignore[arg-type]
        self.worker = self.session.addresses[0]
        self.parameters = address_of(self.session.parameters)
        self.failed = address_of(self.session.launch) + LAUNCH.offset("failed")
        self._snapshots: list[Any] = []
        table().prepare(code.services)

    def copies(self, memory: Sequence[Memory]) -> list[tuple[int, int, int]]:
        """Target, source and bytes of what sets the structures for a launch that may touch this memory too."""
        s = self.session
        s.prepare(self._request._replace(memory=[*memory, *self._request.memory]))
        stride = s._heads.strides[1]
        parts = [(address_of(s.launch), s.launch), (s.addresses[0], s.workers[0])]
        heads = s._heads[0]
        parts += [(address_of(s.blocks) + stride * i, heads[i, : BLOCK.size]) for i in range(len(heads))]
        parts += [(address_of(s.workspace), s.workspace[:WORKSPACE]), (address_of(s.sites), s.sites.reshape(-1))]
        self._snapshots = [(at, np.ascontiguousarray(x).copy()) for at, x in parts if x.size]
        return [(at, address_of(x), x.nbytes) for at, x in self._snapshots]

    def check(self, memory: Sequence[Memory]) -> None:
        """Raise ProgramError for a launch that failed."""
        failure = self.session.failure()
        if failure is not None:
            request = self._request._replace(memory=[*memory, *self._request.memory])
            raise report.failed(self._name, self._sites, request, failure)


def repeatable(code: LaunchableCode, blocks: int) -> bool:
    """Whether code needs nothing but itself on any thread."""
    return not code.asks and (not code.suspends or blocks <= MOST_SLOTS)
