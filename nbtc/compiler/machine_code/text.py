"""LLVM's text of an `llvmlite.ir` function, whose values have numbers instead of names.

llvmlite writes any instruction by a format that asks each operand for its type and its quoted name: a fourth of
Python's time for a program.  Here the instructions that programs have most of are written at once, and the others by
llvmlite.  LLVM keeps a table of the names in a function, in which each pass looks up what it makes and takes away:
without names its passes take a tenth less time.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from llvmlite import ir
from llvmlite.ir import instructions as kinds


def function_text(function: Any) -> str:
    """A function with its body.  Its arguments, blocks and instructions are known by their numbers from then on.

    >>> function = ir.Function(ir.Module(), ir.FunctionType(ir.IntType(32), [ir.IntType(32)]), "twice")
    >>> b = ir.IRBuilder(function.append_basic_block("entry"))
    >>> _ = b.ret(b.add(function.args[0], function.args[0], name="sum"))
    >>> print(function_text(function))
    define i32 @"twice"(i32 %0)
    {
    1:
      %2 = add i32 %0, %0
      ret i32 %2
    }
    """
    numbers = count()
    for argument in function.args:
        _call_by_number(argument, next(numbers))
    for block in function.blocks:
        _call_by_number(block, next(numbers))
        for i in block.instructions:
            if not isinstance(i.type, ir.VoidType):
                _call_by_number(i, next(numbers))
    head: list[str] = []
    function.descr_prototype(head)
    lines = ["".join(head) + "{"]
    for block in function.blocks:
        lines.append(f"{block.get_reference()[1:]}:")
        lines += [_line(i) for i in block.instructions]
    return "\n".join([*lines, "}"])


def _call_by_number(value: Any, number: int) -> None:
    """Let a value be referred to by a number; a string's own `__str__` gives it without any of Python's code."""
    value.get_reference = f"%{number}".__str__


def _line(i: Any) -> str:
    write = None if i.metadata else _WRITERS.get(type(i))
    if write is None:
        parts: list[str] = []
        i.descr(parts)
        said = "".join(parts).rstrip()
    else:
        said = write(i)
    return f"  {said}" if isinstance(i.type, ir.VoidType) else f"  {i.get_reference()} = {said}"


def _typed(values: Any) -> str:
    return ", ".join([f"{x.type} {x.get_reference()}" for x in values])


def _plain(i: Any) -> str:
    flags = " ".join([i.opname, *i.flags])
    return f"{flags} {i.type} {', '.join([x.get_reference() for x in i.operands])}"


def _of_typed(i: Any) -> str:
    return f"{i.opname} {_typed(i.operands)}"


def _select(i: Any) -> str:
    return f"{' '.join([i.opname, *i.flags])} {_typed(i.operands)}"


def _compared(i: Any) -> str:
    x, y = i.operands
    return f"{' '.join([i.opname, *i.flags])} {i.op} {x.type} {x.get_reference()}, {y.get_reference()}"


def _cast(i: Any) -> str:
    return f"{i.opname} {_typed(i.operands)} to {i.type}"


def _load(i: Any) -> str:
    return f"load {i.type}, {_typed(i.operands)}{_aligned(i)}"


def _store(i: Any) -> str:
    return f"store {_typed(i.operands)}{_aligned(i)}"


def _aligned(i: Any) -> str:
    return "" if i.align is None else f", align {i.align}"


def _address(i: Any) -> str:
    inside = " inbounds" if i.inbounds else ""
    return f"getelementptr{inside} {i.source_etype}, {_typed(i.operands)}"


def _call(i: Any) -> str:
    special = i.cconv or i.tail or i.fastmath or i.attributes or i.arg_attributes
    called, *arguments = i.operands
    if special or called.function_type.var_arg:
        parts: list[str] = []
        i.descr(parts)
        return "".join(parts).rstrip()
    return f"call {i.type} {called.get_reference()}({_typed(arguments)})"


_WRITERS: dict[type, Callable[[Any], str]] = {
    kinds.Instruction: _plain, kinds.CastInstr: _cast, kinds.SelectInstr: _select,
    kinds.ICMPInstr: _compared, kinds.FCMPInstr: _compared,
    kinds.LoadInstr: _load, kinds.StoreInstr: _store, kinds.GEPInstr: _address,
    kinds.ShuffleVector: _of_typed, kinds.InsertElement: _of_typed, kinds.ExtractElement: _of_typed,
    kinds.Branch: _of_typed, kinds.ConditionalBranch: _of_typed, kinds.CallInstr: _call,
}  # fmt: skip
