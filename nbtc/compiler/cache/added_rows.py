"""Tables whose rows may be added while a process runs: what was compiled before must not be taken for what they say.

Rows that stand in the source are covered by the source's digest: a process that adds none finds all that others kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar

K = TypeVar("K")
V = TypeVar("V")
P = ParamSpec("P")
_FROZEN: dict[str, tuple[tuple[Any, ...], str]] = {}
_SAID: dict[str, list[str]] = {}  # what was added or taken away since, a list for each table
CHANGES: list[str] = []  # the same of all tables: one that has not grown says so faster than `changes`


class Rows(dict[K, V]):
    """A table made of the rows in the source; each later change is recorded under its name.

    >>> table = Rows("an example", {"a": 1})
    >>> before = changes("an example"), digest("an example")
    >>> table["b"] = 2
    >>> before, changes("an example"), digest("an example") != ""
    ((0, ''), 1, True)
    """

    def __init__(self, name: str, rows: Mapping[K, V]) -> None:
        super().__init__(rows)
        self.name = name

    def __setitem__(self, key: K, row: V) -> None:
        super().__setitem__(key, row)
        record(self.name, f"{key!r} {row!r}")

    def __delitem__(self, key: K) -> None:
        super().__delitem__(key)
        record(self.name, f"{key!r} taken away")

    def pop(self, key: K, *default: Any) -> Any:
        """As of a dict."""
        if key not in self:
            return super().pop(key, *default)
        row = self[key]
        del self[key]
        return row

    def update(self, *rows: Any, **named: Any) -> None:
        """As of a dict."""
        for key, row in dict(*rows, **named).items():
            self[key] = row

    def __ior__(self, rows: Any) -> Rows[K, V]:  # type: ignore[override, misc]
        self.update(rows)
        return self

    def frozen(self) -> tuple[V, ...]:
        """The rows as they were when this was first called: what tables inside compiled code are made of.

        Modules with such tables load at different times; all must know the same rows, or one's code is kept on disk
        under a name that says otherwise.
        """
        if self.name not in _FROZEN:
            _FROZEN[self.name] = tuple(self.values()), digest(self.name)
        return _FROZEN[self.name][0]


def record(name: str, change: str) -> None:
    """Note a change of a table."""
    _SAID.setdefault(name, []).append(change)
    CHANGES.append(change)


def changes(*names: str) -> int:
    """How often tables (default: all) were changed: what was decided by older rows must be decided again."""
    return sum(len(_SAID.get(name, ())) for name in names or _SAID) if _SAID else 0  # asked at every call


def digest(*names: str) -> str:
    """A name for the changes of tables (default: of all) for caches on disk; empty if there are none."""
    said = [(name, _SAID[name]) for name in sorted(names or _SAID) if _SAID.get(name)]
    return hashlib.sha256(repr(said).encode()).hexdigest() if said else ""


def frozen_digest(name: str) -> str:
    """The digest of the rows that compiled code knows; empty while no table of it was made."""
    return _FROZEN[name][1] if name in _FROZEN else ""


def cached(function: Callable[P, V]) -> Callable[P, V]:
    """`functools.cache`, which forgets when a row of any table is added."""

    @cache
    def kept(at: int, *args: Any, **named: Any) -> V:
        return function(*args, **named)

    @wraps(function)
    def current(*args: P.args, **named: P.kwargs) -> V:
        return kept(changes(), *args, **named)  # type: ignore[arg-type]

    return current
