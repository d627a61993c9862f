"""A kernel with everything it reaches: its functions, callees first, and where each variable lies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from nbtc.executor.emit.state import FUNCTION_STEP, FUNCTION_WINDOW, RESERVED_SHARED
from nbtc.executor.rows.spelling import spelled
from nbtc.executor.text.data import (
    Function,
    Generic,
    Immediate,
    Instruction,
    Masked,
    Operand,
    PtxModule,
    Register,
    Special,
    Symbol,
    Variable,
)
from nbtc.executor.text.literals import bits_of
from nbtc.executor.text.operands import others

STACK_BYTES = 16 << 10  # of a thread; CUDA gives 1 KiB unless asked for more


class VariablePlace(NamedTuple):
    """Where a variable lies: its space and the offset there ("const" and "global" share one buffer)."""

    space: str
    offset: int
    bytes: int


class Linked(NamedTuple):
    """A kernel ready for the machine.

    functions: callees before callers, the kernel last.  places: (function or "", variable) -> place.
    static_bytes: local memory of all functions but the recursive ones, whose variables lie on the stack, frame_bytes
    each.  recursive: functions that may be entered again before they have returned, or take memory from the stack.
    taken: whose address is used.  reserved_bytes: at the beginning of shared memory, for the system software.
    """

    module: PtxModule
    kernel: Function
    functions: tuple[Function, ...]
    places: Mapping[tuple[str, str], VariablePlace]
    shared_bytes: int
    static_bytes: int
    frame_bytes: Mapping[str, int]
    recursive: frozenset[str]
    taken: tuple[str, ...]
    reserved_bytes: int

    @property
    def local_bytes(self) -> int:
        """Local memory of a thread, with its stack."""
        return self.static_bytes + (STACK_BYTES if self.recursive or takes_stack(self.kernel) else 0)

    def changed(self, change: Callable[[Function], Function]) -> Linked:
        """The same with each function changed, which keeps its name."""
        functions = tuple(map(change, self.functions))
        kernel = next(f for f in functions if f.name == self.kernel.name)
        return self._replace(kernel=kernel, functions=functions)

    def place(self, function: str, name: str) -> VariablePlace | None:
        """Where a name that a function uses lies."""
        return self.places.get((function, name)) or self.places.get(("", name))

    def function_address(self, name: str) -> int | None:
        """The address that stands for a function, the same in every launch."""
        name = self.module.aliases.get(name, name)
        names = list(self.module.functions)
        return FUNCTION_WINDOW + FUNCTION_STEP * (names.index(name) + 1) if name in names else None


def function_at(module: PtxModule, address: int) -> Function | None:
    """The function that an address stands for."""
    number, rest = divmod(address - FUNCTION_WINDOW, FUNCTION_STEP)
    functions = list(module.functions.values())
    return functions[number - 1] if not rest and 1 <= number <= len(functions) else None


def takes_stack(function: Function) -> bool:
    """Whether a function takes memory from the stack while it runs."""
    return any(i.opcode == "alloca" for i in function.body or ())


def _up(at: int, align: int) -> int:
    return -(-at // align) * align


def variables_layout(module: PtxModule) -> tuple[dict[str, VariablePlace], int]:
    """Offsets of the module's variables, functions' own included, and the bytes of all: .const ones, then .global."""
    places: dict[str, VariablePlace] = {}
    at = 0
    for variable in _static(module):
        at = _up(at, max(variable.align, 16))
        places[variable.name] = VariablePlace(variable.space, at, variable.bytes)
        at += max(variable.bytes, 1)
    return places, at


def _static(module: PtxModule) -> list[Variable]:
    own = [v for function in module.functions.values() for v in function.variables]
    every = [*module.variables.values(), *own]
    return [v for space in ("const", "global") for v in every if v.space == space]


def const_bytes(module: PtxModule) -> int:
    """Where the .const variables end."""
    places, _ = variables_layout(module)
    ends = (places[v.name].offset + max(v.bytes, 1) for v in _static(module) if v.space == "const")
    return max(ends, default=0)


def callees(function: Function, module: PtxModule) -> list[str]:
    """Functions a body names, in calls or by address."""
    names = [s.name for i in function.body or () for o in i.operands for s in others(o) if isinstance(s, Symbol)]
    names += [name for table in function.tables.values() for name in table]
    resolved = (module.aliases.get(name, name) for name in names)
    return _no_kernels(resolved, module)


def _no_kernels(names: Iterable[str], module: PtxModule) -> list[str]:
    """The functions of these names that can be called: a kernel's address is for launching it."""
    return [n for n in dict.fromkeys(names) if n in module.functions and not module.functions[n].entry]


def _named_in(variable: Variable) -> Iterator[str]:
    for value in variable.initial:
        symbol = value.symbol if isinstance(value, Masked) else value
        if isinstance(symbol, Symbol | Generic):
            yield symbol.name


def link(module: PtxModule, name: str) -> Linked:
    """The kernel `name` with its functions and the places of its variables."""
    module = spelled(module)
    kernel = module.functions[name]
    order, recursive = _call_order(module, name)
    functions = tuple(_returning(module.functions[n]) for n in order)
    static, _ = variables_layout(module)
    places = {("", key): place for key, place in static.items()}
    reserved = _reserved(functions)
    shared = _shared(module, functions, places, reserved)
    at, frames = 0, {}
    for function in functions:
        if function.name in recursive:
            frames[function.name] = _local(function, 0, places)
        else:
            at = _local(function, at, places)
    taken = _taken(module, functions)
    return Linked(module, kernel, functions, places, shared, _up(at, 16), frames, recursive, taken, reserved)


def _returning(function: Function) -> Function:
    """A function that ends with an instruction: to ptxas the end of what is called returns, as `ret` does."""
    body = function.body
    if function.entry or body is None or (body and body[-1].opcode == "ret" and body[-1].guard is None):
        return function
    line = body[-1].line if body else function.line
    return function._replace(body=(*body, Instruction("ret", (), (), line)))


def _call_order(module: PtxModule, kernel: str) -> tuple[list[str], frozenset[str]]:
    """Functions with a body that can be reached, callees first; those on a cycle of calls."""
    indirect = _no_kernels((n for v in _static(module) for n in _named_in(v)), module)
    edges: dict[str, list[str]] = {}
    todo = [kernel]
    while todo:
        name = todo.pop()
        if name in edges or module.functions[name].body is None:
            continue
        function = module.functions[name]
        edges[name] = callees(function, module)
        if any(isinstance(o, Register) for i in function.body or () if i.opcode == "call" for o in i.operands[:2]):
            edges[name] += indirect
        todo += edges[name]
    done: list[str] = []
    recursive: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            recursive.update(path[path.index(name) :])
        elif name in edges and name not in done:
            for callee in edges[name]:
                visit(callee, (*path, name))
            if name not in done:
                done.append(name)

    visit(kernel, ())
    recursive.update(name for name in done if name != kernel and takes_stack(module.functions[name]))
    return done, frozenset(recursive)


def _taken(module: PtxModule, functions: Iterable[Function]) -> tuple[str, ...]:
    """Functions whose address a variable or an instruction other than a call takes."""
    names = [n for v in _static(module) for n in _named_in(v)]
    for function in functions:
        for i in function.body or ():
            if i.opcode != "call":
                names += [s.name for o in i.operands for s in others(o) if isinstance(s, Symbol)]
    return tuple(_no_kernels(names, module))


def _reserved(functions: Iterable[Function]) -> int:
    """Shared memory of the system software, where a program asks for its place: CUDA's cooperative groups keep the
    barriers of tiles of several warps there."""
    operands = (o for f in functions for i in f.body or () for o in i.operands)
    named = any(isinstance(s, Special) and s.name.startswith("%reserved_smem") for o in operands for s in others(o))
    return RESERVED_SHARED if named else 0


def _shared(
    module: PtxModule, functions: tuple[Function, ...], places: dict[tuple[str, str], VariablePlace], reserved: int
) -> int:
    """Places of shared variables after what is reserved: those of fixed size, then the dynamic part of open arrays."""
    named = {s.name for f in functions for i in f.body or () for o in i.operands for s in _symbols(o)}
    owned = [("", v) for v in module.variables.values() if v.space == "shared" and v.name in named]
    owned += [(f.name, v) for f in functions for v in f.variables if v.space == "shared"]
    at = reserved
    for owner, variable in sorted(owned, key=lambda x: x[1].length is None or (x[1].external and not x[1].bytes)):
        at = _up(at, variable.align)
        places[owner, variable.name] = VariablePlace("shared", at, variable.bytes)
        at += variable.bytes
    open_ = [(o, v) for o, v in owned if not v.bytes]
    at = _up(at, max([v.align for _, v in open_], default=1))
    for owner, variable in open_:
        places[owner, variable.name] = VariablePlace("shared", at, 0)
    return at


def _symbols(operand: Operand) -> Iterator[Symbol]:
    return (s for s in others(operand) if isinstance(s, Symbol))


def _local(function: Function, at: int, places: dict[tuple[str, str], VariablePlace]) -> int:
    """Places of a function's local variables and, but for a kernel's own, of its parameters."""
    own = [v for v in function.variables if v.space in ("local", "param")]
    if not function.entry:
        own += [v for v in (*function.prototype.results, *function.prototype.arguments) if v.space == "param"]
    else:
        offset = 0
        for v in function.prototype.arguments:
            offset = _up(offset, v.align)
            places[function.name, v.name] = VariablePlace("param", offset, v.bytes)
            offset += v.bytes
    for variable in own:
        at = _up(at, variable.align)
        places[function.name, variable.name] = VariablePlace("local", at, variable.bytes)
        at += variable.bytes
    return _up(at, 16)


def initial_bytes(module: PtxModule, base: int) -> bytearray:
    """What the module's variables hold at first, when they begin at the address `base`."""
    places, size = variables_layout(module)
    data = bytearray(size)
    names = list(module.functions)

    def address(name: str, offset: int, generic: bool) -> int:
        name = module.aliases.get(name, name)
        if name in places:
            own = places[name].space == "const" and not generic  # an address in the space, an offset
            return (0 if own else base) + places[name].offset + offset
        return FUNCTION_WINDOW + FUNCTION_STEP * (names.index(name) + 1) + offset if name in names else offset

    for variable in _static(module):
        at = places[variable.name].offset
        for i, value in enumerate(variable.initial):
            where = at + i * variable.element_bytes
            data[where : where + variable.element_bytes] = _word(value, variable, address)
    return data


def _word(value: Immediate | Symbol | Generic | Masked, variable: Variable, address: object) -> bytes:
    size = variable.element_bytes
    if isinstance(value, Immediate):
        return bits_of(value, variable.type).to_bytes(size, "little")
    symbol = value.symbol if isinstance(value, Masked) else value
    number = address(symbol.name, symbol.offset, isinstance(symbol, Generic))  # type: ignore[operator]
    if isinstance(value, Masked):
        low = (value.mask & -value.mask).bit_length() - 1
        number = (number & value.mask) >> low
    return int(number & ((1 << 8 * size) - 1)).to_bytes(size, "little")
