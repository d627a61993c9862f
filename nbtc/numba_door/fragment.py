"""Fragments inside functions compiled by Numba: one warp, whose register image is the fragment.

`frag.x` is a view of that image, (num_storage_elements, 32), in numbers that Numba knows: f16 and bf16 elements are
their bits in uint16.  What a fragment is must be known when the function is compiled.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba.core import cgutils, types
from numba.extending import intrinsic, make_attribute_wrapper, models, overload_attribute, register_model

from nbtc.errors import CompilerError
from nbtc.formats.table import FORMATS, Format
from nbtc.isa.spec import Operand
from nbtc.isa.wmma import fragment as fragment_operand
from nbtc.isa.wmma_names import MatrixLayout, Use
from nbtc.numba_door.constants import constant_of, format_named, literal
from nbtc.numba_door.images import number_type

EXAMPLE = "wmma.fragment(wmma.matrix_a, 16, 16, 16, nbtc.f16, wmma.row_major)"
IMAGE = types.Array(types.uint32, 2, "C")


class FragmentKind(NamedTuple):
    """What a fragment is: use, (m, n, k), element format, and the memory layout of a matrix_a or matrix_b."""

    use: Use
    shape: tuple[int, int, int]
    format: Format
    layout: MatrixLayout | None

    @property
    def operand(self) -> Operand:
        """Its registers."""
        return fragment_operand(
            self.use.value, self.shape, self.format, self.layout.value if self.layout is not None else "row"
        )

    @property
    def stored(self) -> np.dtype[Any]:
        """dtype of `x` in compiled functions: elements, or words of packed ones."""
        if self.format.packed:
            return np.dtype(np.int32 if self.format.signed else np.uint32)
        return number_type(self.format)

    @property
    def num_elements(self) -> int:
        return self.operand.elements

    @property
    def num_storage_elements(self) -> int:
        operand = self.operand
        return operand.registers if self.format.packed else operand.elements

    def __str__(self) -> str:
        end = f", {self.layout.name}" if self.layout else ""
        return f"fragment({self.use.name}, {', '.join(map(str, self.shape))}, {self.format.name}{end})"


def tile_of_fragment(x: Any, name: str) -> FragmentKind:
    """The tile of an argument's type, or an error."""
    if not isinstance(x, FragmentType):
        raise CompilerError(f"{name} works on a fragment, not on {x}: make one with {EXAMPLE}")
    return x.tile


def tile_of(use: Any, m: Any, n: Any, k: Any, T: Any, layout: Any) -> FragmentKind:
    """The tile that a call of `fragment` in compiled code describes; raises in one line where it describes none."""
    role = literal(use, Use, "fragment: use", EXAMPLE)
    shape = tuple(literal(x, int, f"fragment: {name}", EXAMPLE) for x, name in ((m, "m"), (n, "n"), (k, "k")))
    fmt = format_named(T)
    found = fmt if isinstance(fmt, Format) else None
    if found is None:
        raise CompilerError(f"fragment: T must be a format, such as nbtc.f16, as in {EXAMPLE}; it is {fmt}")
    how = constant_of(layout)
    if role is not Use.accumulator:
        how = literal(layout, MatrixLayout, f"fragment: layout of a {role.name}", EXAMPLE)
        found = FORMATS["tf32"] if found.name == "f32" else found
    elif how is not None:
        raise CompilerError(
            "fragment: an accumulator has no layout: wmma.fragment(wmma.accumulator, 16, 16, 16, nbtc.f32)"
        )
    fragment_operand(role.value, (shape[0], shape[1], shape[2]), found, how.value if how else "row")  # or raises
    return FragmentKind(role, (shape[0], shape[1], shape[2]), found, how)


class FragmentType(types.Type):  # type: ignore[misc, unused-ignore]
    """A fragment in compiled code: its image (32, registers)."""

    def __init__(self, tile: FragmentKind) -> None:
        self.tile = tile
        super().__init__(str(tile))


@register_model(FragmentType)
class _FragmentModel(models.StructModel):  # type: ignore[misc, unused-ignore]
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, [("image", IMAGE)])


make_attribute_wrapper(FragmentType, "image", "image")


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def made_fragment(typing, kind, image):
    """The fragment of an image; `kind` is a FragmentType in a TypeRef."""
    result = kind.instance_type

    def codegen(context, builder, sig, args):
        made = cgutils.create_struct_proxy(result)(context, builder)
        made.image = args[1]
        context.nrt.incref(builder, IMAGE, args[1])
        return made._getvalue()

    return result(kind, image), codegen


def _constant(name: str) -> None:
    """Let compiled code read a number that the fragment's type tells."""

    @overload_attribute(FragmentType, name)
    def attribute(frag):
        value = getattr(frag.tile, name)
        return lambda frag: value


for _name in ("num_elements", "num_storage_elements"):
    _constant(_name)


@overload_attribute(FragmentType, "x")  # type: ignore[untyped-decorator, unused-ignore]
def _numbers(frag):
    stored = frag.tile.stored.type
    return lambda frag: frag.image.view(stored).T
