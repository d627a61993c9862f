"""A function of CuTe DSL that runs on the CPU: arguments as CuTe DSL takes them, kernels as programs."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from threading import Lock
from typing import Any

from cutlass.cutlass_dsl.cuda_jit_executor import CudaDialectJitCompiledFunction

from nbtc.cute.host import Host, Launch
from nbtc.cute.tensor_maps import ALIGN, decoded
from nbtc.cute.tensors import dynamic_sizes, is_tensor, leaves, memory_behind, tensor
from nbtc.errors import FormatError, OptionError, ShapeError, UnsupportedInstructionError, shown
from nbtc.executor.launch.arguments import Arguments, Parameter, marshal, memory_list
from nbtc.executor.memory.ranges import Memory
from nbtc.executor.program import Module, load
from nbtc.executor.transfer.tensor_map import BYTES


class Emulated:
    """A compiled function for the CPU: call it with its arguments; `checked` is the same with hazards watched."""

    arch: str | int | None
    compiled: Any
    memory: Sequence[Any]
    threads: int | None
    module: Module

    def __init__(
        self, compiled: Any, arch: str | int | None, threads: int | None, memory: Sequence[Any], checked: bool = False
    ) -> None:
        if type(compiled) is not CudaDialectJitCompiledFunction:
            raise FormatError(f"{shown(compiled)}: pass what cute.compile returned, without --enable-tvm-ffi")
        if not compiled.__ptx__:
            raise OptionError(
                "the function was compiled without its PTX: add --keep-ptx to the options of cute.compile"
            )
        self.compiled, self.arch, self.threads, self.memory = compiled, arch, threads, memory
        self.module = load(compiled.__ptx__)
        if ".im2col" in self.module.text:
            raise UnsupportedInstructionError(
                "tensor maps of im2col copies, which the host's code makes, can't be read"
            )
        self._checked, self._lock, self._reach = checked, Lock(), list[Memory]()
        self._sizes = list(_dynamic_sizes(compiled))
        self._host = Host(compiled, self._launch)

    @cached_property
    def checked(self) -> Emulated:
        """The same function with every access, barrier and asynchronous operation of its kernels watched."""
        return Emulated(self.compiled, self.arch, self.threads, self.memory, True)

    def __call__(self, *args: Any, **options: Any) -> None:
        """Run it; NumPy arrays stand for tensors of the layout that it was compiled for."""
        sizes, binder = iter(self._sizes), self.compiled.execution_args
        bound = binder.signature.bind(*args, **options)
        bound.apply_defaults()
        given = [self._argument(x, sizes) for x in bound.arguments.values()]
        values, keeps = binder.generate_execution_args(tuple(given), {})
        found = [memory_behind(x, f"tensor {i}") for i, x in enumerate(leaves(given))]
        with self._lock:
            self._reach = [*(m for m in found if m is not None), *memory_list(self.memory)]
            self._host(values)
        del keeps  # the values lie in them

    def _argument(self, x: Any, sizes: Iterator[int]) -> Any:
        """A tensor for an array; other values as they are, tensors among them compared with what was compiled."""
        if type(x) in (tuple, list):
            return type(x)(self._argument(part, sizes) for part in x)
        if not is_tensor(x) and hasattr(x, "__dlpack__"):
            x = tensor(x, None)
            wanted = next(sizes, 0)
            return x if dynamic_sizes(x) == wanted else _of_sizes(x.mark_layout_dynamic(), wanted)
        return _of_sizes(x, next(sizes, dynamic_sizes(x))) if is_tensor(x) else x

    def _launch(self, asked: Launch) -> None:
        """Run one kernel."""
        program = self.module[asked.kernel].on(self.module.target if self.arch is None else self.arch)
        values = [_value(p, asked.parameters[i]) for i, p in enumerate(program.params)]
        program.launch(
            asked.grid,
            asked.block,
            Arguments(marshal(self.module.ptx.functions[program.name], values).bytes, self._reach),
            shared=asked.shared,
            cluster=asked.cluster,
            cooperative=asked.cooperative,
            threads=self.threads,
            checked=self._checked,
        )


def _value(parameter: Parameter, address: int) -> bytes:
    """The bytes of one parameter; tensor maps in the executor's layout."""
    raw = ctypes.string_at(address, parameter.bytes)
    return decoded(raw) if (parameter.bytes, parameter.alignment) == (BYTES, ALIGN) else raw


def _of_sizes(x: Any, wanted: int) -> Any:
    """A tensor, if it has as many dynamic sizes as the function was compiled for."""
    given = dynamic_sizes(x)
    if given != wanted:
        raise ShapeError(
            f"a tensor with {given} extents and strides to pass, where the function was compiled for {wanted}: mark "
            "the same ones dynamic (mark_layout_dynamic, mark_compact_shape_dynamic) as in the call of cute.compile"
        )
    return x


def _dynamic_sizes(compiled: Any) -> Iterator[int]:
    """Of each tensor that the host's function takes: how many extents and strides its struct holds."""
    for operation in compiled.ir_module.body:
        if getattr(operation, "sym_name", None) is not None and operation.sym_name.value == compiled.function_name:
            signature = str(operation.attributes["function_type"])
            for struct in re.findall(r"struct<\(ptr<1>, (struct<[^!p]*?>)\)>(?=[,)])", signature):
                yield len(re.findall(r"\bi\d+", struct))
