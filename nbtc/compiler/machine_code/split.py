"""A program's functions to machine code, each by itself: most are the same in many programs, and compiled once.

A warp's code is a function of its program alone.  What it calls (products, accesses to memory, barriers) and what calls
it (the loop of a worker) hardly differ from program to program, but were three quarters of what LLVM had to do for a
small one.  So each is a module of its own, found on disk by its text.  LLVM knows of a function elsewhere what it
found out about it when it compiled that (which memory it touches, which pointers it keeps): the declaration says it.
That is known when their text is optimised, so their machine code, half of what a first product takes, is written by
threads of their own beside the warp's.

LLVM's allocation of registers takes more than linear time in a function's blocks: a warp of 2,800 blocks took 42 s of
a processor, against 3 s without optimisation, which keeps values between blocks in memory.  The functions that such a
warp calls for its products stay optimised.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from llvmlite import ir

from nbtc.compiler.machine_code import emission, native
from nbtc.compiler.machine_code.text import function_text
from nbtc.compiler.threads import Beside

# Basic blocks of a function from which only few of LLVM's passes see its text, and its machine code isn't optimised.
# The largest of the 160 recorded programs has 830 blocks, CUB's algorithms 2,000 to 5,300, CUTLASS's stream-K product
# 7,100.
MANY_BLOCKS = 1000
# Instructions of a basic block from which the machine code's level is 1: above it LLVM schedules again after it has
# allocated registers, which takes more than linear time in a block's length (4.0 of 12.7 s for a softmax of 2,300 PTX
# instructions whose longest block has 5,464).  Runs of attention (1,368) with and without it differed either way, by up
# to a tenth, as runs do on a loaded machine; Collatz (78) was slower without it in two of two.
LONG_BLOCK = 1000
# Instructions of a shared function with a loop from which all of LLVM's passes are worth their time: without them the
# loop that runs warps took 1.2 times as long for blocks that hardly do anything, and products of warpgroups had 3 and
# 12 % more code.  Others come out as large without (18,866 bytes instead of 18,942 of 23 that a product calls), in half
# of the time for passes.
LONG_LOOP = 100
SYMBOL = 16  # digits of a digest in a symbol
OPTIMISED = native.Levels(alone=True)
_NAME = re.compile(r'@"([^"]+)"')
_METADATA = re.compile(r"!(\d+)\b")


class SplitProgram(ir.Module):  # type: ignore[misc]
    """A module of what no other has; all else belongs to the module `shared`."""

    def __init__(self, name: str, shared: ir.Module) -> None:
        super().__init__(name)
        self.triple, self.shared = shared.triple, shared


def shared_module(module: ir.Module) -> ir.Module:
    """Where a function belongs that code in a module calls and others may have too."""
    return module.shared if isinstance(module, SplitProgram) else module


def own_levels(function: Any, wanted: native.Levels = OPTIMISED) -> native.Levels:
    """How far LLVM optimises a function that may be large: as far as wanted, if it isn't too large."""
    if len(function.blocks) >= MANY_BLOCKS:
        return native.Levels(0, 0, alone=True)
    long = any(len(b.instructions) >= LONG_BLOCK for b in function.blocks)
    return wanted._replace(code=1) if long else wanted


def shared_levels(function: Any) -> native.Levels:
    """How far LLVM optimises a function that programs share; the loop that runs warps is the one without vectors."""
    long = sum(len(b.instructions) for b in function.blocks) >= LONG_LOOP and _loops(function)
    scalar = not any(isinstance(i.type, ir.VectorType) for b in function.blocks for i in b.instructions)
    return native.Levels((native.LOOPS if scalar else 1) if long else None, alone=True, waits=None)


def _loops(function: Any) -> bool:
    """Whether a block leads to itself or to one that stands before it, as some block of any loop does."""
    places = {b.name: n for n, b in enumerate(function.blocks)}
    return any(
        places[target.name] <= places[b.name]
        for b in function.blocks
        for target in getattr(b.terminator, "operands", ())
        if isinstance(target, ir.Block)
    )


class Compiled(NamedTuple):
    """A function that is compiled, or about to be: its symbol, how others declare it, what it names, and the name of
    the object file that has it, empty before there is one.

    The symbol says all that the code depends on: object files with other functions of a name may meet in a program.
    """

    symbol: str
    declaration: str
    named: tuple[str, ...]
    file: str


class _Begun(NamedTuple):
    """An object file that is being made: its functions, with their names and keys, and what gives its bytes."""

    names: list[str]
    keys: tuple[str, ...]
    functions: tuple[native.SharedFunction, ...]
    code: Beside


class ObjectFiles(NamedTuple):
    """Object files of a program, and the symbols that they name but none of them has: functions that the program's own
    never call, of files that it takes others from, call those.
    """

    files: list[bytes]
    absent: list[str]


class Functions:
    """The functions of an `llvmlite.ir` module, each a module of its own; they may call those of another collection.

    A function's instructions are let go when it is compiled.
    """

    def __init__(self, module: Any, others: Functions | None = None) -> None:
        self.module, self.globals, self.others = module, module.globals, others
        self.made: dict[str, Compiled] = {}
        self.files: dict[str, native.Native] = {}  # object files by their names
        self._waiting: dict[str, tuple[str, native.SharedFunction]] = {}  # by name: a function's key, and its module
        self._contexts: dict[bool, Any] = {}  # LLVM's contexts of functions that wait: of matrix instructions, others
        self._begun: list[_Begun] = []
        self._under_way: set[str] = set()
        self._met: set[str] = set()  # functions that were named while they were under way, and keep their names

    def objects(self, own: str, *shared: str, levels: native.Levels = OPTIMISED) -> ObjectFiles:
        """Object files of a program: its own function, those that it shares with others, and all that they call.

        levels: how far LLVM optimises its own, if it isn't too large.
        """
        try:
            return self._objects(own, shared, levels)
        except BaseException:
            for file in (file for functions in self._all for file in functions._begun):
                file.code.leave()
            raise

    @property
    def _all(self) -> tuple[Functions, ...]:
        return (self, self.others) if self.others else (self,)

    def _objects(self, own: str, shared: tuple[str, ...], levels: native.Levels) -> ObjectFiles:
        self._under_way.add(own)
        for functions in self._all:
            functions._begin_products()
        module, named = self._text(own, self._body(own))
        met = {own}
        for name in (todo := [*named, *shared]):
            if name not in met and (made := self.compiled(name)) is not None:
                todo += made.named
            met.add(name)
        for functions in self._all:
            functions._begin()
        code = native.compile_text(module, *own_levels(self.globals[own], levels))
        found = {f.object: f.about for name in todo if (f := self.finished(name)) is not None}
        symbols = {symbol for about in found.values() for symbol in about["symbols"]}
        absent = {symbol for about in found.values() for symbol in about["calls"]} - symbols
        return ObjectFiles([code, *found], sorted(absent))

    def finished(self, name: str) -> native.Native | None:
        """The object file that has a function, with all others that wait for machine code; None as of `compiled`."""
        if self.compiled(name) is None:
            return None
        if name not in self.made and self.others:
            return self.others.finished(name)
        self._begin()
        while self._begun:
            self._finish(self._begun[-1])  # the last one may not have come to its thread yet
            self._begun.pop()
        return self.files[self.made[name].file]

    def _begin_products(self) -> None:
        """Have the object file of matrix instructions made, before anything else: it takes longest."""
        for name in [x for x in self.globals if _of_products(x)]:
            self.compiled(name)
        self._begin(True)

    def _begin(self, *kinds: bool) -> None:
        """Have object files made of all that waits."""
        for products in kinds or (True, False):
            if names := [x for x in self._waiting if _of_products(x) is products]:
                keys, functions = zip(*(self._waiting.pop(name) for name in names), strict=True)
                work = native.joined(functions, self._contexts.pop(products))
                self._begun.append(_Begun(names, keys, functions, Beside(work)))

    def _finish(self, begun: _Begun) -> None:
        names, keys, functions, code = begun
        file = native.digest("functions", *keys)
        symbols = [function.name for function in functions]
        called = {self.symbol(x) for name in names for x in self.made[name].named if self.compiled(x) is not None}
        about = {"symbols": symbols, "calls": sorted(called.difference(symbols))}
        self.files[file] = native.Native(code.result(), about)
        native.keep(file, self.files[file])
        for name, key, function in zip(names, keys, functions, strict=True):
            native.keep(key, native.Native(b"", {"declaration": function.declaration, "file": file}))
            self.made[name] = self.made[name]._replace(file=file)

    def compiled(self, name: str) -> Compiled | None:
        """A function, whose machine code other programs may have left on disk; None for what has no body here."""
        if name in self.made or name in self._under_way:
            return self.made.get(name)
        function = self.globals.get(name)
        if not getattr(function, "blocks", None):
            return self.others.compiled(name) if self.others and function is None else None
        self._under_way.add(name)
        text, named = self._text(name, self._body(name))
        self._under_way.remove(name)
        key = native.digest("function of a file", text, str(name in self._met))
        symbol = name if name in self._met else f"{name}.{key[:SYMBOL]}"
        found = self._on_disk(key)
        if found is None:
            text = text.replace(f'@"{name}"', f'@"{symbol}"')
            made = native.optimised(symbol, text, shared_levels(function), self._context(name))
            self._waiting[name] = key, made
            found = made.declaration, ""
        self.made[name] = Compiled(symbol, found[0], named, found[1])
        function.blocks = []
        return self.made[name]

    def _context(self, name: str) -> Any:
        """LLVM's context of the functions with which this one becomes machine code."""
        products = _of_products(name)
        if products not in self._contexts:
            self._contexts[products] = emission.context()
        return self._contexts[products]

    def symbol(self, name: str) -> str:
        """By which a function that is compiled is found in its object file."""
        made = self.compiled(name)
        return name if made is None else made.symbol

    def _on_disk(self, key: str) -> tuple[str, str] | None:
        """A function's declaration and file, if both are there."""
        found = native.fetch(key)
        if found is None:
            return None
        file = found.about["file"]
        if file not in self.files:
            whole = native.fetch(file)
            if whole is None:
                return None
            self.files[file] = whole
        return found.about["declaration"], file

    def _body(self, name: str) -> str:
        return function_text(self.globals[name]).replace("define internal ", "define ", 1)

    def _text(self, name: str, body: str) -> tuple[str, tuple[str, ...]]:
        """The module of a function: all that it names, and nothing else; these names."""
        needed = {x: self._outside(x) for x in _NAME.findall(body) if x != name}
        for x in (todo := list(needed)):
            new = {y: self._outside(y) for y in _NAME.findall(needed[x]) if y not in (*needed, x, name)}
            needed |= new
            todo += new
        head = f'target triple = "{self.module.triple}"\ntarget datalayout = "{self.module.data_layout}"'
        body = _NAME.sub(self._by_symbol, body)
        return "\n".join([head, *needed.values(), *self._with_metadata(body)]), tuple(needed)

    def _by_symbol(self, named: re.Match[str]) -> str:
        made = self.compiled(named[1])
        return named[0] if made is None else f'@"{made.symbol}"'

    def _outside(self, name: str) -> str:
        """What stands in other functions' modules for a name: a declaration, or a constant."""
        made, here = self.compiled(name), self.globals.get(name)
        if made is not None:
            return made.declaration
        if here is None and self.others:
            return self.others._outside(name)
        if not getattr(here, "blocks", None):
            return str(here)
        self._met.add(name)
        return _declared(here)

    def _with_metadata(self, body: str) -> list[str]:
        """A function's text and the metadata that it refers to, numbered anew so that modules agree."""
        numbers: dict[str, int] = {}

        def renumbered(text: str) -> str:
            return _METADATA.sub(lambda found: f"!{numbers.setdefault(found[1], len(numbers))}", text)

        lines = [renumbered(body)]
        for number in (todo := list(numbers)):
            lines.append(renumbered(str(self.module.metadata[int(number)])))
            todo += list(numbers)[len(todo) :]
        return lines


def _of_products(name: str) -> bool:
    """Whether a function belongs to matrix instructions: those are in files of their own, most programs have none."""
    return name.startswith("nbtc_")


def _declared(function: Any) -> str:
    """A function of another module."""
    arguments = ", ".join(str(a.type) for a in function.args)
    return f'declare {function.return_value.type} @"{function.name}"({arguments}) nounwind'
