"""A program's functions to machine code, each by itself: most are the same in many programs, and compiled once.

A warp's code is a function of its program alone.  What it calls (products, accesses to memory, barriers) and what calls
it (the loop of a worker) hardly differ from program to program, but were three quarters of what LLVM had to do for a
small one.  So each is a module of its own, found on disk by its text.  LLVM knows of a function elsewhere what it
found out about it when it compiled that (which memory it touches, which pointers it keeps): the declaration says it.

LLVM's allocation of registers takes more than linear time in a function's blocks: a warp of 2,800 blocks took 42 s of
a processor, against 3 s without optimisation, which keeps values between blocks in memory.  The functions that such a
warp calls for its products stay optimised.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from nbtc.compiler import native

# Basic blocks of a function, and how far LLVM then optimises its text; its machine code not at all.  The largest of the
# 160 recorded programs has 830 blocks, CUTLASS's warp-specialised products have some 2,000 to 3,500: those took 21 s.
# Its stream-K product has 7,100: LLVM's passes took 43 s, without optimisation 2 s.
MANY_BLOCKS, MOST_BLOCKS = 1000, 5000
_NAME = re.compile(r'@"([^"]+)"')
_METADATA = re.compile(r"!(\d+)\b")


class Levels(NamedTuple):
    """How far LLVM optimises a function: its text, and its machine code."""

    text: int = 2
    code: int = 2


def levels(function: Any) -> Levels:
    """Those of a function that may be large."""
    count = len(function.blocks)
    return Levels() if count < MANY_BLOCKS else Levels(int(count < MOST_BLOCKS), 0)


def objects(module: Any, own: str) -> list[bytes]:
    """Object files of an `llvmlite.ir` module, one a function; `own` is the one that no other module has."""
    parts = _Parts(module, own)
    shared = [parts.compiled(name) for name in parts.callees_first() if name != own]
    function = module.globals[own]
    return [native.compile_text(parts.text(own), *levels(function)), *shared]


class _Parts:
    """A module's functions as modules of their own."""

    def __init__(self, module: Any, own: str) -> None:
        self.globals = module.globals
        self.head = f'target triple = "{module.triple}"\ntarget datalayout = "{module.data_layout}"'
        self.metadata = [str(x) for x in module.metadata]
        self.bodies = {
            name: str(x).replace("define internal ", "define ", 1)
            for name, x in module.globals.items()
            if getattr(x, "blocks", None)
        }
        self.declarations = {own: _declared(module.globals[own])}

    def callees_first(self) -> list[str]:
        """Names of the functions."""
        seen: set[str] = set()
        order: list[str] = []

        def visit(name: str) -> None:
            if name in self.bodies and name not in seen:
                seen.add(name)
                for callee in self._named(self.bodies[name]):
                    visit(callee)
                order.append(name)

        for name in self.bodies:
            visit(name)
        return order

    def compiled(self, name: str) -> bytes:
        """The object file of a function, which other programs may have left on disk."""
        text = self.text(name)
        key = native.digest("function", text)
        found = native.fetch(key)
        if found is None:
            found = native.compile_function(text, name)
            native.keep(key, found)
        self.declarations[name] = found.about["declaration"]
        return found.object

    def text(self, name: str) -> str:
        """The module of a function: all that it names, and nothing else."""
        needed = dict.fromkeys(self._named(self.bodies[name]))
        for x in (todo := list(needed)):
            new = [y for y in self._named(self._outside(x)) if y not in needed]
            needed.update(dict.fromkeys(new))
            todo += new
        outside = (self._outside(x) for x in needed if x != name)
        return "\n".join([self.head, *outside, *self._with_metadata(self.bodies[name])])

    def _named(self, text: str) -> Iterator[str]:
        return (x for x in _NAME.findall(text) if x in self.globals)

    def _outside(self, name: str) -> str:
        """What stands in a module for what another function's module or LLVM has, and for a constant."""
        if name not in self.bodies:
            return str(self.globals[name])
        return self.declarations.get(name) or _declared(self.globals[name])  # not compiled yet: they call each other

    def _with_metadata(self, body: str) -> list[str]:
        """A function's text and the metadata that it refers to, numbered anew so that modules agree."""
        numbers: dict[str, int] = {}

        def renumbered(text: str) -> str:
            return _METADATA.sub(lambda found: f"!{numbers.setdefault(found[1], len(numbers))}", text)

        lines = [renumbered(body)]
        for number in (todo := list(numbers)):
            lines.append(renumbered(self.metadata[int(number)]))
            todo += list(numbers)[len(todo) :]
        return lines


def _declared(function: Any) -> str:
    """A function of another module."""
    arguments = ", ".join(str(a.type) for a in function.args)
    return f'declare {function.return_value.type} @"{function.name}"({arguments}) nounwind'
