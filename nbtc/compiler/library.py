"""What LLVM does to a kernel, and how often.

Numba runs LLVM's passes over every function by itself, then over each library, and again over each library that takes
it in.  Here a function that callers take in is optimised by itself and then as a part of them: not as a library too.
An emitted function is vector instructions already, thousands of them: it is optimised once, apart from its callers,
which only declare it, and joins them when they become machine code.  That is two fifths of LLVM's time less.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, Self

import llvmlite.binding as llvm
from llvmlite import ir
from numba.core.cgutils import normalize_ir_text
from numba.core.codegen import JITCodeLibrary

from nbtc.compiler.machine_code.native import FEW, named_passes

EMITTED = "nbtc_"  # how names of emitted functions begin


def emitted_function(module: Any, kind: Any, name: str) -> Any:
    """A new function of an `llvmlite.ir` module for a body of vector instructions: never inlined, optimised once.

    The name stands for all that the body depends on.
    """
    function = ir.Function(module, kind, EMITTED + name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    return function


class KernelLibrary(JITCodeLibrary):  # type: ignore[misc]
    """That of a kernel."""

    def __init__(self, codegen: Any, name: str) -> None:
        super().__init__(codegen, name)
        self._linking_libraries: list[Any] = []
        self.emitted: dict[str, bytes] = {}  # optimised IR by the functions' names

    def add_ir_module(self, module: Any) -> None:
        """Take in a module of `llvmlite.ir`, its emitted functions apart."""
        defined = [f for f in module.functions if f.blocks]
        emitted = [f for f in defined if f.name.startswith(EMITTED)]
        if emitted:
            name = " ".join(f.name for f in emitted)
            self.emitted[name] = self._optimised(_declaring(module, [f for f in defined if f not in emitted], emitted))
            self.add_llvm_module(_parsed(_declaring(module, emitted)))
        else:
            super().add_ir_module(module)

    def _optimised(self, text: str) -> bytes:
        """Bitcode of emitted functions."""
        module = _parsed(text)
        module.data_layout = self._codegen._data_layout
        passes = named_passes(FEW)
        passes.add_strip_dead_prototype_pass()
        passes.run(module, self._codegen._pass_builder())
        return bytes(module.as_bitcode())

    def _optimize_functions(self, module: Any) -> None:
        """As Numba does, but with one pipeline for all functions, and without those that are only declared."""
        module.data_layout = self._codegen._data_layout
        passes, builder = self._codegen._function_pass_manager()
        for function in module.functions:
            if not function.is_declaration:
                passes.run(function, builder)

    def finalize(self) -> None:
        """Link, optimise and compile; the emitted functions of callees stay apart until the last step."""
        callees = [x for x in self._linking_libraries if isinstance(x, CalleeLibrary)]
        for callee in callees:
            self.emitted.update(callee.emitted)
        self._linking_libraries = [x.written if x in callees else x for x in self._linking_libraries]
        super().finalize()

    def _finalize_final_module(self) -> None:
        join(self._final_module, self.emitted)
        super()._finalize_final_module()


class CalleeLibrary(KernelLibrary):
    """That of a function which callers take in: done when its IR is."""

    @property
    def written(self) -> Written:
        """What callers of nbtc take in, who have `emitted` too."""
        return Written(self)

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True

    def _optimize_final_module(self) -> None:
        """The passes by which Numba drops references; all others run in callers."""
        codegen = self._codegen
        passes, builder = codegen._module_pass_manager(
            loop_vectorize=codegen._loopvect, slp_vectorize=False, opt=codegen._opt_level, cost="cheap"
        )
        passes.run(self._final_module, builder)

    def _get_module_for_linking(self) -> Any:
        """What anyone takes in: all of it."""
        module = self.written_module()
        if self.emitted:
            module = module.clone()
            join(module, self.emitted)
        return module

    def written_module(self) -> Any:
        """The part without emitted functions."""
        return super()._get_module_for_linking()

    @classmethod
    def of(cls, codegen: Any, name: str, bitcode: bytes, emitted: dict[str, bytes]) -> Self:
        """What `bitcode` and `emitted` gave."""
        self = cls(codegen, name)
        self._final_module, self.emitted = llvm.parse_bitcode(bitcode), emitted
        self._finalize_final_module()
        return self


class Written(NamedTuple):
    """A callee's library without its emitted functions, as Numba looks at a library that it links."""

    library: CalleeLibrary

    @property
    def _reload_init(self) -> Any:
        return self.library._reload_init

    def _get_module_for_linking(self) -> Any:
        return self.library.written_module()


def join(module: Any, emitted: dict[str, bytes]) -> None:
    """Add emitted functions to a module that declares them."""
    for code in emitted.values():
        module.link_in(llvm.parse_bitcode(code))


def _declaring(module: Any, functions: list[Any], exported: Iterable[Any] = ()) -> str:
    """A module's text in which some functions are only declared, and others are for whoever links it."""
    before = [(f, f.blocks, f.linkage) for f in (*functions, *exported)]
    try:
        for f in functions:
            f.blocks, f.linkage = [], ""
        for f in exported:
            f.linkage = "linkonce_odr"
        return str(module)
    finally:
        for f, blocks, linkage in before:
            f.blocks, f.linkage = blocks, linkage


def _parsed(text: str) -> Any:
    module = llvm.parse_assembly(normalize_ir_text(text))
    module.verify()
    return module
