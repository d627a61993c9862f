"""Register images that know whose layout they are in.

Most operands lie in registers alike on every architecture, and their images are plain arrays.  The fragments of
`wmma` do not: NVIDIA leaves their layout open and has changed it.  Images of those carry the architecture they were
made for, so that one laid out for another cannot be taken for the own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbtc.errors import LayoutError
from nbtc.isa.archs import Arch
from nbtc.isa.archs import arch as arch_row
from nbtc.isa.spec import Operand


class FragmentImage(np.ndarray[Any, np.dtype[np.uint32]]):
    """A uint32 register image that remembers for which architectures' fragment layout it was made (`.archs`).

    Views, slices, copies, pickles and what NumPy makes of it remember it too; `np.array(image)` is plain words whose
    layout the caller vouches for.

    >>> import numpy as np, nbtc
    >>> i = nbtc.instruction("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32")
    >>> i.pack_a(np.eye(16, dtype=np.float16), arch="sm_70")[:4].copy().archs
    ('sm_70',)
    """

    archs: tuple[str, ...] = ()

    def __array_finalize__(self, source: Any) -> None:
        self.archs = getattr(source, "archs", ())

    def __array_function__(self, function: Any, kinds: Any, args: Any, kwargs: Any) -> Any:
        result = super().__array_function__(function, kinds, args, kwargs)
        if type(result) is not np.ndarray or result.dtype != np.uint32:
            return result
        parts = [p for a in args for p in (a if isinstance(a, list | tuple) else [a])]
        return _marked(result, tuple(sorted({name for p in parts for name in archs_of(p)})))

    def __reduce__(self) -> Any:
        return _marked, (np.array(self), self.archs)


def _marked(words: NDArray[np.uint32], archs: tuple[str, ...]) -> FragmentImage:
    image = words.view(FragmentImage).copy()  # it owns its words: then np.asarray(image).base is the image
    image.archs = archs
    return image


def placed(words: NDArray[np.uint32], operand: Operand, arch: object) -> NDArray[np.uint32]:
    """An image of `operand` (as its row declares it) that is in the layout of `arch`: marked if layouts differ."""
    return _marked(words, (arch_row(arch).name,)) if operand.variants else words


def archs_of(words: Any) -> tuple[str, ...]:
    """The architectures that an image says it was made for; () for plain words."""
    while isinstance(words, np.ndarray):
        if isinstance(words, FragmentImage):
            return words.archs
        words = words.base  # np.asarray of an image is a plain view of it
    return ()


def check_layout(words: Any, operand: Operand, target: Arch, name: str) -> None:
    """Raise LayoutError if `words` say that they are laid out otherwise than `target` lays out the operand."""
    for said in archs_of(words) if operand.variants else ():
        if operand.on(arch_row(said)).layout != operand.on(target).layout:
            raise LayoutError(
                f"{name} was laid out for {said}, but {target.name} places a {operand.rows}x{operand.cols} fragment of "
                f'{operand.format.name} otherwise: load or pack it with arch="{target.name}", or run, store and unpack '
                f'with arch="{said}"'
            )
