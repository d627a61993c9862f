"""What is made once in a process, by one thread while others that want it too wait for it."""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import RLock
from typing import Any


class MadeOnce:
    """Things by their keys, which stay for the life of the process."""

    def __init__(self) -> None:
        self.made: dict[str, Any] = {}
        self._locks: dict[str, Any] = {}
        if hasattr(os, "register_at_fork"):  # a thread that was making something is not in a child
            os.register_at_fork(after_in_child=self._locks.clear)

    def get(self, key: str, make: Callable[[], Any]) -> Any:
        """What `make` gave for a key, when it was first asked for."""
        found = self.made.get(key)
        if found is None:
            with self._locks.setdefault(key, RLock()):
                found = self.made.get(key)
                if found is None:
                    found = self.made[key] = make()
        return found
