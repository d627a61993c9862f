"""A typed kernel becomes one LLVM module, and that PTX text."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import llvmlite.binding as llvm
from llvmlite import ir
from numba.core import compiler, types
from numba.core.compiler_lock import global_compiler_lock
from numba.core.debuginfo import DIBuilder
from numba.core.errors import NumbaDebugInfoWarning

from nbtc.compiler.announce import announced
from nbtc.compiler.machine_code import native
from nbtc.dialect import folding, selectable, target, vocabulary
from nbtc.dialect.parameters import MAP_ALIGN, KernelParameter, parameter
from nbtc.dialect.vocabulary import math_words
from nbtc.errors import KernelError
from nbtc.isa.archs import arch as find_arch
from nbtc.isa.version import version_of, with_version

vocabulary.load()

# What LLVM 20 writes PTX for, with the PTX ISA version that a driver has to know ("+ptx80" is CUDA 12.0's).
PROCESSORS = {70: 80, 72: 80, 75: 80, 80: 80, 86: 80, 87: 80, 89: 80, 90: 80, 100: 86, 120: 87}
# Instructions of one architecture alone: the text's target then has its suffix (PTX ISA 5.1.2, ".target").
OF_ONE_ARCHITECTURE = re.compile(r"\b(wgmma|setmaxnreg|tcgen05)\.|\.kind::|\bcvt\S*\.(e2m1|e2m3|e3m2|ue8m0)x2\b")
# Instructions of PTX versions above those (PTX ISA 9.7.15 and 9.7.16, "PTX ISA Notes"); drivers that know no newer
# version than a text's are shown an older one, so a higher one costs nothing.
NEWER = {
    re.compile(r"\bcvt\S*\.e[45]m[23]x2\b"): (8, 1),  # on sm_89
    re.compile(r"\.sp::ordered_metadata\b"): (8, 5),
    # f32 accumulators since 8.4, f16 ones and K = 16 since 8.7
    re.compile(r"\bmma\.s(?:ync|p)\S*\.e[45]m[23]\.e[45]m[23]\b"): (8, 7),
}
NAMED_TARGET = re.compile(r"^\.target (sm_\d+)\b", re.MULTILINE)


ENTRY_BODY = re.compile(r"^\{", re.MULTILINE)  # the first line of a text that begins so: helpers are inlined


class Bounds(NamedTuple):
    """What launches of a kernel are held to: threads of a block (0: any), blocks of a cluster along x, y and z."""

    threads: int = 0
    cluster: tuple[int, ...] = ()

    @property
    def directives(self) -> dict[str, tuple[int, ...]]:
        """As PTX says it (PTX ISA 11.4, "Performance-Tuning Directives", and 11.7, "Cluster Dimension Directives")."""
        found: dict[str, tuple[int, ...]] = {"maxntid": (self.threads,), "minnctapersm": (1,)} if self.threads else {}
        return {**found, "reqnctapercluster": self.cluster} if self.cluster else found


class WrittenPtx(NamedTuple):
    """A kernel's PTX: the text, its name there."""

    text: str
    name: str


def processor(arch: str) -> tuple[str, str]:
    """LLVM's names for an architecture and its PTX version: the newest that LLVM knows and the architecture runs."""
    number = max(n for n in PROCESSORS if n <= find_arch(arch).number)
    return f"sm_{number}", f"+ptx{PROCESSORS[number]}"


@announced
@global_compiler_lock
def write(function: Callable[..., Any], kinds: Sequence[Any], arch: str, bounds: Bounds) -> WrittenPtx:
    """The PTX of a Python function for arguments of these types."""
    name = re.sub(r"\W", "_", function.__name__)
    with target.compiling_for(arch) as where, warnings.catch_warnings():
        warnings.simplefilter("ignore", NumbaDebugInfoWarning)  # a kernel typed into a prompt has no lines to show
        typing, context = where.typing_context, where.target_context
        context.refresh()
        options: Any = (None, target.flags(), {}, None, folding.Compiler)
        found = compiler.compile_extra(typing, context, function, tuple(kinds), *options)
        if isinstance(found.signature.return_type, types.Generator):
            raise KernelError("a kernel yields nothing: store results")
        if found.signature.return_type is not types.none:
            raise KernelError(f"a kernel returns nothing, and this one {found.signature.return_type}: store results")
        names = function.__code__.co_varnames
        given = [parameter(context, name, kind) for name, kind in zip(names, kinds, strict=False)]
        entry = _entry(context, found, name, given)
        texts = [math_words.renamed(text) for library in found.library.every() for text in library.texts]
        texts += math_words.bodies(texts)
    with native.LOCK:
        text = _emit([*dict.fromkeys(texts), entry], name, arch)
        held = "".join(f".{name} {', '.join(map(str, values))}\n" for name, values in bounds.directives.items())
        return WrittenPtx(ENTRY_BODY.sub(f"{held}{{", text, count=1), name)


def _entry(context: Any, compiled: Any, name: str, given: Sequence[KernelParameter]) -> str:
    """The kernel proper: it makes Numba's values of its parameters and calls the function."""
    module = context.create_module(f"entry.{name}")
    about = compiled.fndesc
    fields = [f for p in given for f in p.fields]
    entry = ir.Function(module, ir.FunctionType(ir.VoidType(), [f.type for f in fields]), name)
    entry.calling_convention = "ptx_kernel"
    for argument, field in zip(entry.args, fields, strict=True):
        argument.name = field.name
        if field.by_value:
            argument.add_attribute("byval")
            argument.attributes.align = MAP_ALIGN
    builder = ir.IRBuilder(entry.append_basic_block("entry"))
    code = compiled.type_annotation.func_id.func.__code__
    lines = DIBuilder(module, code.co_filename, context, directives_only=True)
    lines.mark_subprogram(entry, name, (), (), code.co_firstlineno)
    lines.mark_location(builder, code.co_firstlineno)  # inlined code has its own lines below this one
    kind = context.call_conv.get_function_type(about.restype, about.argtypes)
    callee = ir.Function(module, kind, about.llvm_func_name)
    rest = iter(entry.args)
    arguments = [p.rebuild(builder, rest) for p in given]
    context.call_conv.call_function(builder, callee, about.restype, about.argtypes, arguments)
    builder.ret_void()
    lines.finalize()
    return str(module)


def _emit(texts: Sequence[str], name: str, arch: str) -> str:
    """Link, optimise, and write PTX."""
    native.binding()
    module = llvm.parse_assembly(texts[-1])
    for text in texts[:-1]:
        module.link_in(llvm.parse_assembly(text))
    selectable.check(module)
    for function in module.functions:
        if not function.is_declaration:
            function.add_function_attribute("convergent")
        if not function.is_declaration and function.name != name:
            function.linkage = "internal"
            function.add_function_attribute("alwaysinline")
    for variable in module.global_variables:
        if not variable.is_declaration and variable.linkage.name != "internal":
            variable.linkage = "internal"
    machine = target.machine(*processor(arch))
    tuning = llvm.create_pipeline_tuning_options(speed_level=2)
    tuning.loop_vectorization = tuning.slp_vectorization = False
    passes = llvm.create_pass_builder(machine, tuning)
    passes.getModulePassManager().run(module, passes)
    selectable.check(module)
    return _of_version(_of_one_architecture(machine.emit_assembly(module), arch))


def _of_one_architecture(text: str, arch: str) -> str:
    """The text with the target that its instructions need."""
    suffix = find_arch(arch).suffixes[:1]
    return NAMED_TARGET.sub(rf".target \g<1>{suffix}", text, count=1) if OF_ONE_ARCHITECTURE.search(text) else text


def _of_version(text: str) -> str:
    """The text with the PTX version that its instructions need."""
    own = version_of(text)
    if own is None:
        return text
    return with_version(text, max([own, *(version for pattern, version in NEWER.items() if pattern.search(text))]))
