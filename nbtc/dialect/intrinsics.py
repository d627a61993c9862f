"""CUDA's single precision intrinsics as rows: the instructions that each is, for Python here, for kernels as PTX.

What NVRTC 13.0 makes of a kernel with each of them (tests/interop/test_nvrtc.py), but products with `.rn`: nothing that
follows is fused with them.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbtc.errors import FormatError, ShapeError
from nbtc.executor.rows.approx_arrays import approx

Array = NDArray[np.float32]
PRODUCT = "mul.rn.f32"
# by name: a line for each instruction, `$1` and `$2` the operands, `$0` the result, t and u between; the constants are
# log2(e), log2(10), log(2) and log10(2)
INTRINSICS: dict[str, tuple[str, ...]] = {
    "__expf": ("mul.rn.f32 t, $1, 0f3FB8AA3B;", "ex2.approx.f32 $0, t;"),
    "__exp10f": ("mul.rn.f32 t, $1, 0f40549A78;", "ex2.approx.f32 $0, t;"),
    "__logf": ("lg2.approx.f32 t, $1;", "mul.rn.f32 $0, t, 0f3F317218;"),
    "__log2f": ("lg2.approx.f32 $0, $1;",),
    "__log10f": ("lg2.approx.f32 t, $1;", "mul.rn.f32 $0, t, 0f3E9A209B;"),
    "__sinf": ("sin.approx.f32 $0, $1;",),
    "__cosf": ("cos.approx.f32 $0, $1;",),
    "__tanf": ("sin.approx.f32 t, $1;", "cos.approx.f32 u, $1;", "div.approx.f32 $0, t, u;"),
    "__tanhf": ("tanh.approx.f32 $0, $1;",),
    "__powf": ("lg2.approx.f32 t, $1;", "mul.rn.f32 t, $2, t;", "ex2.approx.f32 $0, t;"),
    "__fdividef": ("div.approx.f32 $0, $1, $2;",),
}
WORKS = "for example nbtc.intrinsics.__expf(np.float32([0.5, 1.0]))"


def operands(name: str) -> int:
    """How many operands a function has."""
    return 2 if any("$2" in line for line in INTRINSICS[name]) else 1


def assembly(name: str) -> str:
    """A function as PTX in a block of its own."""
    return f"{{ .reg .f32 t, u; {' '.join(INTRINSICS[name])} }}"


def _call(name: str, *given: ArrayLike) -> Any:
    arrays = [np.asarray(x) for x in given]
    for x in arrays:
        if x.dtype != np.float32:
            raise FormatError(f"{name} takes float32, not {x.dtype}; {WORKS}")
    try:
        arrays = list(np.broadcast_arrays(*arrays))
    except ValueError:
        shapes = ", ".join(str(x.shape) for x in arrays)
        raise ShapeError(f"operands of {name} have shapes {shapes}, which do not broadcast; {WORKS}") from None
    values = {f"${i}": np.ascontiguousarray(x) for i, x in enumerate(arrays, 1)}
    for line in INTRINSICS[name]:
        mnemonic, result, *sources = re.split(r"[ ,;]+", line.strip(";"))
        values[result] = _instruction(mnemonic, [values[s] if s in values else _constant(s) for s in sources])
    return values["$0"].reshape(arrays[0].shape)[()]


def _constant(text: str) -> Array:
    return np.array(int(text.removeprefix("0f"), 16), np.uint32).view(np.float32)


def _instruction(mnemonic: str, sources: list[Array]) -> Array:
    if mnemonic == PRODUCT:
        with np.errstate(all="ignore"):
            found = np.asarray(sources[0] * sources[1])
        return np.where(np.isnan(found), np.uint32(0x7FFFFFFF).view(np.float32), found)
    return np.asarray(approx(mnemonic, *(s.view(np.uint32) for s in sources))).view(np.float32)


def __expf(x: ArrayLike) -> Any:
    """e**x, as ex2(x log2(e)); x: float32."""
    return _call("__expf", x)


def __exp10f(x: ArrayLike) -> Any:
    """10**x, as ex2(x log2(10)); x: float32."""
    return _call("__exp10f", x)


def __logf(x: ArrayLike) -> Any:
    """The natural logarithm, as lg2(x) log(2); x: float32."""
    return _call("__logf", x)


def __log2f(x: ArrayLike) -> Any:
    """The logarithm to base 2; x: float32."""
    return _call("__log2f", x)


def __log10f(x: ArrayLike) -> Any:
    """The logarithm to base 10, as lg2(x) log10(2); x: float32."""
    return _call("__log10f", x)


def __sinf(x: ArrayLike) -> Any:
    """The sine; x: float32, in radians."""
    return _call("__sinf", x)


def __cosf(x: ArrayLike) -> Any:
    """The cosine; x: float32, in radians."""
    return _call("__cosf", x)


def __tanf(x: ArrayLike) -> Any:
    """The tangent, as sin(x) / cos(x); x: float32, in radians."""
    return _call("__tanf", x)


def __tanhf(x: ArrayLike) -> Any:
    """The hyperbolic tangent; x: float32."""
    return _call("__tanhf", x)


def __powf(x: ArrayLike, y: ArrayLike) -> Any:
    """x**y, as ex2(y lg2(x)): NaN for negative x; x, y: float32."""
    return _call("__powf", x, y)


def __fdividef(x: ArrayLike, y: ArrayLike) -> Any:
    """x / y as x times the reciprocal of y: zero where |y| is above 2**126; x, y: float32."""
    return _call("__fdividef", x, y)
