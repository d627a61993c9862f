"""The body of a PTX function: scopes, declarations, labels, instructions and their operands."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from nbtc.errors import ParseError
from nbtc.executor.text.cursor import END, Cursor
from nbtc.executor.text.data import (
    Address,
    Function,
    Group,
    Guard,
    Immediate,
    Instruction,
    Not,
    Operand,
    Pair,
    Prototype,
    Register,
    Selected,
    Sink,
    SourcePlace,
    Special,
    Symbol,
    Variable,
    Vector,
)
from nbtc.executor.text.declare import parameters, variables
from nbtc.executor.text.lex import integer

COMPONENTS = {name: i for names in ("xyzw", "rgba") for i, name in enumerate(names)}
MOST_REGISTERS = 1 << 20  # that a function may declare: a hundred times what compilers write, and 200 MB here
Names = dict[str, Any]  # of one scope: registers, vectors of registers, symbols of variables


class _Unresolved(NamedTuple):
    """A name that was no variable when it was read: a label or function, found once the body has ended."""

    name: str
    scopes: tuple[int, ...]
    line: int


class Body:
    """Reads one function's body."""

    def __init__(
        self,
        c: Cursor,
        function: Function,
        module: Mapping[str, Variable],
        functions: Mapping[str, Function],
        files: dict[int, str],
    ) -> None:
        self.c, self.function, self.module, self.functions, self.files = c, function, module, functions, files
        self.instructions: list[Instruction] = []
        self.variables: list[Variable] = []
        self.labels: dict[tuple[str, int], int] = {}
        self.tables: dict[tuple[str, int], tuple[_Unresolved, ...]] = {}
        self.prototypes: dict[str, Prototype] = {}
        self.scopes: list[Names] = [{}]
        self.scope_ids: tuple[int, ...] = (0,)
        self.opened = 0
        self.unresolved: list[_Unresolved] = []
        self.later: dict[int, tuple[int, ...]] = {}  # instructions that name such, with their scopes
        self.source: SourcePlace | None = None
        self.registers = 0  # declared with a count

    def parse(self) -> Function:
        """Read `{ ... }`."""
        for variable in (*self.function.prototype.results, *self.function.prototype.arguments):
            self._declare(variable)
        self.c.expect("{")
        while len(self.scope_ids) > 0:
            self._statement()
        if not self.instructions:  # an empty body returns
            self.instructions.append(Instruction("ret", (), (), self.function.line))
        keys = {key: self._key(*key) for key in self.labels}
        table_keys = {key: self._key(*key) for key in self.tables}
        known = keys | table_keys
        names = {(u.name, u.scopes): self._resolve(u, known) for u in self.unresolved}
        for at, scopes in self.later.items():
            self.instructions[at] = _renamed(self.instructions[at], scopes, names)
        return self.function._replace(
            body=tuple(self.instructions),
            variables=tuple(self.variables),
            labels=MappingProxyType({keys[key]: at for key, at in self.labels.items()}),
            tables=MappingProxyType(
                {table_keys[key]: tuple(names[u.name, u.scopes] for u in t) for key, t in self.tables.items()}
            ),
            prototypes=MappingProxyType(self.prototypes),
        )

    # --- names ------------------------------------------------------------------------------------------------------
    def _key(self, name: str, scope: int) -> str:
        """A label's name, told apart from the same name in other scopes."""
        return name if scope == 0 else f"{name}#{scope}"

    def _resolve(self, u: _Unresolved, keys: Mapping[tuple[str, int], str]) -> str:
        for scope in reversed(u.scopes):
            if (u.name, scope) in keys:
                return keys[u.name, scope]
        return u.name

    def _declare(self, variable: Variable) -> None:
        """A variable of this scope; registers of a function's parameter list too."""
        name, scopes = variable.name, self.scopes
        if name in scopes[-1]:
            self.c.fail(f"{name} is declared twice in one scope")
        if variable.space == "reg":
            unique = name if len(scopes) == 1 else f"{name}#{self.scope_ids[-1]}"
            register = Register(unique, variable.type)
            count = variable.length or 1
            scopes[-1][name] = (
                register
                if count == 1
                else Vector(tuple(Register(f"{unique}.{i}", variable.type) for i in range(count)))
            )
            return
        unique = name if len(scopes) == 1 else f"{name}#{self.scope_ids[-1]}"
        if variable.space in (
            "global",
            "const",
        ):  # the module keeps them all, and another function's may be named alike
            unique = f"{self.function.name}::{unique}"
        scopes[-1][name] = Symbol(unique)
        if variable not in (*self.function.prototype.results, *self.function.prototype.arguments):
            self.variables.append(variable._replace(name=unique))

    def _find(self, name: str) -> Any:
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        return None

    # --- statements -------------------------------------------------------------------------------------------------
    def _statement(self) -> None:
        c = self.c
        token = c.next
        if token.text == "{":
            c.take()
            self.opened += 1
            self.scopes.append({})
            self.scope_ids = (*self.scope_ids, self.opened)
        elif token.text == "}":
            c.take()
            self.scopes.pop()
            self.scope_ids = self.scope_ids[:-1]
        elif token.text[:1] == ".":
            self._directive()
        elif token.kind == "name" and c.peek(1).text == ":":
            self._label()
        elif token is END:
            c.fail(f"the body of {self.function.name} never ends")
        elif not c.takes(";"):
            self.instructions.append(self._instruction())

    def _directive(self) -> None:
        c, word = self.c, self.c.next.text
        if word == ".reg":
            self._registers()
        elif word in (".local", ".shared", ".param", ".global", ".const") or word.startswith(".shared::"):
            for variable in variables(c, external=False, several=True):
                self._declare(variable)
            c.expect(";")
        elif word == ".loc":
            self._location()
        elif word == ".file":
            c.take()
            c.line()
        elif word == ".pragma":
            c.take()
            c.string()
            c.expect(";")
        elif word == ".section":
            c.take()
            c.take()
            c.skip_braces()
        else:
            c.fail("no directive of function bodies")

    def _location(self) -> None:
        self.c.take()
        numbers = self.c.line()
        if [n.kind for n in numbers[:2]] != ["integer", "integer"]:
            self.c.fail("the numbers of a file and a line should follow .loc", numbers[0] if numbers else None)
        file, line = (integer(n.text, n.line) for n in numbers[:2])
        self.source = SourcePlace(self.files.get(file, f"file {file}"), line)

    def _registers(self) -> None:
        """`.reg .b32 %r<6>, x;` or `.reg .v4 .f32 v;`"""
        c = self.c
        c.take()
        lanes = int(c.take().text[2:]) if c.next.text in (".v2", ".v4", ".v8") else 1
        kind = c.type()
        while True:
            name = c.name()
            if c.takes("<"):
                token, count = c.next, c.number()
                self.registers += count
                if self.registers > MOST_REGISTERS:
                    c.fail(f"a function has at most {MOST_REGISTERS} registers here", token)
                for i in range(count):
                    self._declare(Variable(f"{name}{i}", "reg", kind, lanes, 0))
                c.expect(">")
            else:
                self._declare(Variable(name, "reg", kind, lanes, 0))
            if not c.takes(","):
                break
        c.expect(";")

    def _label(self) -> None:
        c = self.c
        name, line = c.name(), c.take().line
        key = (name, self.scope_ids[-1])
        if c.next.text in (".branchtargets", ".calltargets"):
            c.take()
            targets = []
            while True:
                target = _Unresolved(c.name(), self.scope_ids, line)
                targets.append(target)
                if not c.takes(","):
                    break
            c.expect(";")
            self.tables[key] = tuple(targets)
            self.unresolved.extend(targets)
        elif c.next.text == ".callprototype":
            c.take()
            results = parameters(c) if c.next.text == "(" else ()
            c.take()
            arguments = parameters(c) if c.next.text == "(" else ()
            while c.next.text != ";":
                c.take()
            c.expect(";")
            self.prototypes[name] = Prototype(results, arguments)
        elif key in self.labels:
            raise ParseError(f"line {line}: the label {name} stands twice")
        else:
            self.labels[key] = len(self.instructions)

    def _instruction(self) -> Instruction:
        c = self.c
        guard = None
        if c.takes("@"):
            negated = c.takes("!")
            place = c.next
            register = self._find(c.name())
            if not isinstance(register, Register) or register.type != "pred":
                c.fail("a guard is a predicate register, declared as .reg .pred", place)
            guard = Guard(register, negated)
        token = c.take()
        if token.kind != "name" or token.text[0] in ".%":
            c.fail("an instruction should stand here", token)
        opcode, *modifiers = token.text.split(".")
        while c.next.kind == "name" and c.next.text[0] == ".":  # white space may stand before a modifier
            modifiers += c.take().text[1:].split(".")
        operands: list[Operand] = []
        while c.next.text != ";":
            operands.append(self._operand())
            if c.next.text != ";":
                if not c.takes(","):
                    c.fail("',' or ';' should stand here", c.next)
                if c.next.text == ";":
                    c.fail("an operand should follow the comma")
        c.expect(";")
        return Instruction(opcode, tuple(modifiers), tuple(operands), token.line, guard, self.source)

    # --- operands ---------------------------------------------------------------------------------------------------
    def _operand(self) -> Operand:
        c = self.c
        first = self._single()
        return Pair(first, self._single()) if c.takes("|") else first

    def _single(self) -> Operand:
        c = self.c
        token = c.next
        if token.kind == "name":
            return self._named()
        if token.text == "{":
            return Vector(self._list("{", "}"))
        if token.text == "[":
            return self._address()
        if token.text == "!":
            c.take()
            register = self._named()
            if not isinstance(register, Register):
                c.fail("only a predicate register can be negated", token)
            return Not(register)
        if token.text == "-" and c.peek(1).kind == "name":
            c.take()
            named = self._named()
            if isinstance(named, Register):
                return Selected(named, "-")
            if isinstance(named, Selected):
                return Selected(named.register, f"-{named.selector}")
            c.fail("only a register can be negated", token)
        if token.text == "(" and self._is_group():
            return Group(self._list("(", ")"))
        return c.constant()

    def _is_group(self) -> bool:
        """Whether `(` opens a parameter list of a call, and no expression."""
        return self.c.peek(1).kind == "name" or self.c.peek(1).text == ")" or self.c.peek(2).text in (",", ")")

    def _list(self, opening: str, closing: str) -> tuple[Operand, ...]:
        c = self.c
        c.expect(opening)
        found: list[Operand] = []
        while not c.takes(closing):
            found.append(self._single())
            if c.next.text != closing:
                c.expect(",")
        return tuple(found)

    def _named(self) -> Operand:
        c = self.c
        token = c.take()
        name = token.text
        if name == "_":
            return Sink()
        found = self._find(name)
        if found is None and "." in name:
            found = self._component(name)
        if found is None:
            found = self._outside(name, token.line)
        if isinstance(found, Symbol) and c.next.text in ("+", "-"):
            return found._replace(offset=c.expression())
        return found  # type: ignore[no-any-return]

    def _component(self, name: str) -> Operand | None:
        """`v.x` of a vector of registers, `%r1.b0` of the video instructions."""
        base, _, part = name.rpartition(".")
        found = self._find(base)
        if isinstance(found, Vector) and part in COMPONENTS and COMPONENTS[part] < len(found.elements):
            return found.elements[COMPONENTS[part]]
        return Selected(found, part) if isinstance(found, Register) else None

    def _outside(self, name: str, line: int) -> Operand:
        """What no scope of the function declares."""
        if name in self.module or name in self.functions:
            return Symbol(name)
        if name == "WARP_SZ" or name[0] == "%":
            return Special(name)
        self.unresolved.append(_Unresolved(name, self.scope_ids, line))
        self.later[len(self.instructions)] = self.scope_ids
        return Symbol(name)

    def _address(self) -> Address:
        """`[base + 4]`, `[map, {x, y}]`"""
        c = self.c
        c.expect("[")
        base: Operand = self._named() if c.next.kind == "name" else Immediate(c.expression())
        offset = c.expression() if c.next.text in ("+", "-") else 0
        if isinstance(base, Symbol):
            offset, base = offset + base.offset, base._replace(offset=0)
        rest = []
        while c.takes(","):
            rest.append(self._single())
        c.expect("]")
        return Address(base, offset, tuple(rest))


def _renamed(
    instruction: Instruction, scopes: tuple[int, ...], names: Mapping[tuple[str, tuple[int, ...]], str]
) -> Instruction:
    """The instruction with the labels that its operands name told apart by their scopes."""
    operands = (
        o._replace(name=names.get((o.name, scopes), o.name)) if isinstance(o, Symbol) else o
        for o in instruction.operands
    )
    return instruction._replace(operands=tuple(operands))
