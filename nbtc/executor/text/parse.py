"""PTX text to a `PtxModule`: directives, functions and variables (PTX ISA 6.0 to 9.x, chapters 4, 5 and 11)."""

from __future__ import annotations

import re
from types import MappingProxyType

from nbtc.errors import ParseError
from nbtc.executor.text.cursor import END, Cursor
from nbtc.executor.text.data import Function, Prototype, PtxModule, Variable
from nbtc.executor.text.declare import attribute, parameters, variables
from nbtc.executor.text.lex import Token, integer
from nbtc.executor.text.parse_body import Body

LINKING = (".extern", ".visible", ".weak", ".common")
SPACES = (".global", ".const", ".shared", ".local", ".param", ".reg", ".tex")
PERFORMANCE = (
    ".maxntid", ".reqntid", ".minnctapersm", ".maxnctapersm", ".maxnreg", ".maxclusterrank", ".reqnctapercluster",
    ".explicitcluster", ".blocksareclusters", ".noreturn", ".abi_preserve", ".abi_preserve_control", ".unified",
)  # fmt: skip


def parse(text: str) -> PtxModule:
    """The module that a PTX text describes.

    >>> m = parse(".version 8.0 .target sm_80 .address_size 64 .visible .entry k(.param .u32 n) { ret; }")
    >>> m.target, m.functions["k"].body[0].opcode
    ('sm_80', 'ret')
    """
    try:
        return _ModuleParser(text).module()
    except RecursionError:
        raise ParseError("PTX: parentheses or braces are nested too deeply to be read") from None


def _files(tokens: list[Token]) -> dict[int, str]:
    """Source files by their numbers: compilers write them before the code or after it."""
    places = (n for n, token in enumerate(tokens[:-2]) if token.text == ".file")
    return {
        integer(tokens[n + 1].text, tokens[n + 1].line): tokens[n + 2].text.strip('"')
        for n in places
        if tokens[n + 1].kind == "integer"
    }


class _ModuleParser:
    def __init__(self, text: str) -> None:
        self.c = Cursor(text)
        self.version, self.target = (0, 0), ""
        self.functions: dict[str, Function] = {}
        self.own: set[str] = set()  # variables that this part of a link defines
        self.weak: set[str] = set()  # functions whose definitions so far are weak
        self.variables: dict[str, Variable] = {}
        self.aliases: dict[str, str] = {}
        self.files = _files(self.c.tokens)

    def module(self) -> PtxModule:
        if ".version" not in (t.text for t in self.c.tokens[:1]):
            found = f"begins with {self.c.next.text!r}" if self.c.tokens else "is empty"
            raise ParseError(f"this text {found}, which is not PTX: a module begins with .version")
        while self.c.next is not END:
            self._statement()
        if not self.target:
            raise ParseError("this PTX names no .target")
        return PtxModule(
            self.version,
            self.target,
            MappingProxyType(self.functions),
            MappingProxyType(self.variables),
            MappingProxyType(self.aliases),
        )

    def _statement(self) -> None:
        c = self.c
        linking = set()
        while c.next.text in LINKING:
            linking.add(c.take().text)
        word = c.next.text
        if word in (".entry", ".func"):
            function = self._function(".extern" in linking)
            self._define(function, ".weak" in linking)
        elif word in SPACES:
            for variable in variables(c, ".extern" in linking):
                old_variable = self.variables.get(variable.name)
                if variable.name in self.own and not variable.external:
                    c.fail(f"{variable.name} is declared twice")
                self.own |= {variable.name} if not variable.external else set()
                if old_variable is None or old_variable.external:
                    self.variables[variable.name] = variable
            c.expect(";")
        else:
            self._directive()

    def _define(self, function: Function, weak: bool) -> None:
        """A function or its declaration; each module of a link may define a weak one, and a strong one counts."""
        old = self.functions.get(function.name)
        if function.body is None and old is not None:
            return
        if old is None or old.body is None or (function.name in self.weak and not weak):
            self.functions[function.name] = function
            (self.weak.add if weak else self.weak.discard)(function.name)
        elif not weak:
            raise ParseError(f"line {function.line}: {function.name} is defined twice")

    def _directive(self) -> None:
        c = self.c
        word = c.take()
        if word.text == ".version":
            number = c.take()
            parts = re.fullmatch(r"([0-9]{1,3})(?:\.([0-9]{1,3}))?", number.text)
            if parts is None:
                c.fail("a version such as 8.0 should stand here", number)
            self.version = (int(parts[1]), int(parts[2] or 0))
            self.own = set()
        elif word.text == ".target":
            self.target = c.name()
            while c.takes(","):
                c.take()
        elif word.text == ".address_size":
            if (size := c.take().text) != "64":
                raise ParseError(f"line {word.line}: .address_size {size}: only 64-bit programs can run")
        elif word.text == ".file":
            self.c.line()
        elif word.text in (".loc", "@"):
            c.line()
        elif word.text == ".section":
            c.take()
            c.skip_braces()
        elif word.text == ".pragma":
            c.string()
            c.expect(";")
        elif word.text == ".alias":
            alias = c.name()
            c.expect(",")
            self.aliases[alias] = c.name()
            c.expect(";")
        elif word.text != ";":
            c.fail("no directive of PTX modules", word)

    def _function(self, external: bool) -> Function:
        c = self.c
        entry, line = c.next.text == ".entry", c.take().line
        if c.next.text == ".attribute":
            attribute(c)
        results = parameters(c) if not entry and c.next.text == "(" else ()
        name = c.name()
        arguments = parameters(c) if c.next.text == "(" else ()
        directives = self._performance()
        prototype = Prototype(results, arguments)
        if c.takes(";") or external:
            return Function(name, entry, prototype, line, directives)
        shell = Function(name, entry, prototype, line, directives)
        return Body(c, shell, self.variables, self.functions, self.files).parse()

    def _performance(self) -> MappingProxyType[str, tuple[int, ...]]:
        c, found = self.c, {}
        while c.next.text in (*PERFORMANCE, ".pragma"):
            word = c.take().text
            if word == ".pragma":
                c.string()
                c.expect(";")
            else:
                found[word[1:]] = c.integers()
        return MappingProxyType(found)
