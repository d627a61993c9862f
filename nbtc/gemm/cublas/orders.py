"""Which order of summation a kernel of cuBLAS used for a shape: recordings, and a guess for the rest."""

from __future__ import annotations

from dataclasses import dataclass, replace

from nbtc.errors import GuessedOrderWarning, OptionError, shown, warn
from nbtc.formats.arrays import as_format
from nbtc.gemm.cublas.fused import lone
from nbtc.gemm.cublas.shapes import Found, find
from nbtc.gemm.orders import Order
from nbtc.gemm.orders import order as order_row

MNK = tuple[int, int, int]
SQUARE: tuple[MNK, ...] = ((64, 64, 64), (128, 128, 128), (512, 512, 512), (2048, 2048, 256))
FLAT: tuple[MNK, ...] = ((64, 64, 16), (64, 64, 32), (32, 32, 512), (16, 4096, 512), (48, 80, 48), (1024, 1024, 80))
FP8 = SQUARE + FLAT
MOST = (*FP8, (100, 200, 72))
ALL = (*MOST, (33, 65, 136))
TF32 = ((128, 128, 128), (512, 512, 512), (2048, 2048, 256), (64, 64, 32), (16, 4096, 512), (1024, 1024, 80))
DEEP: tuple[MNK, ...] = ((512, 512, 512), (2048, 2048, 256), (32, 32, 512), (16, 4096, 512))  # fp8 with K > 128


@dataclass(frozen=True)
class Recorded:
    """One kind of product: formats of A and B, outputs, how B lies in memory, fast fp8 accumulation, shapes -> order.

    layout: "nn" B in row-major order, "nt" in column-major order.
    """

    a: str
    b: str
    out: tuple[str, ...]
    layout: tuple[str, ...]
    sizes: tuple[MNK, ...]
    order: str = "seq"
    fast: tuple[bool, ...] = (True, False)


_OUTPUTS = ("f32", "f16", "bf16")
_FP8 = tuple(
    row
    for a in ("e4m3", "e5m2")
    for row in (
        Recorded(a, "e4m3", _OUTPUTS, ("nt",), FP8, fast=(True,)),
        Recorded(a, "e4m3", _OUTPUTS, ("nt",), tuple(s for s in FP8 if s not in DEEP), fast=(False,)),
        Recorded(a, "e4m3", _OUTPUTS, ("nt",), DEEP, "promote128", fast=(False,)),
    )
)
_H200 = (
    Recorded("f16", "f16", ("f16",), ("nn", "nt"), MOST),
    Recorded("f16", "f16", ("f32",), ("nn",), MOST),
    Recorded("f16", "f16", ("f32",), ("nn",), ((33, 65, 136),), "k16:resfirst16"),
    Recorded("bf16", "bf16", ("bf16",), ("nn", "nt"), ALL),
    Recorded("bf16", "bf16", ("f32",), ("nn",), MOST),
    Recorded("bf16", "bf16", ("f32",), ("nn",), ((33, 65, 136),), "k8:split9x16"),
    Recorded("f64", "f64", ("f64",), ("nn",), ALL),
    Recorded("f64", "f64", ("f64",), ("nt",), MOST),
    Recorded("f64", "f64", ("f64",), ("nt",), ((33, 65, 136),), "split5x32"),
    Recorded("s8", "s8", ("s32",), ("nn",), (*SQUARE, (64, 64, 16), (64, 64, 32), (32, 32, 512), (1024, 1024, 80))),
    Recorded("s8", "s8", ("s32",), ("nt",), tuple(s for s in MOST if s != (16, 4096, 512))),
    Recorded("tf32", "tf32", ("f32",), ("nn", "nt"), (*TF32, (33, 65, 136))),
    Recorded("tf32", "tf32", ("f32",), ("nn", "nt"), ((64, 64, 64),), "slice64/2"),
    Recorded("tf32", "tf32", ("f32",), ("nn", "nt"), ((32, 32, 512),), "split16x32"),
    Recorded("tf32", "tf32", ("f32",), ("nn",), ((64, 64, 16),), "split4x4"),
    Recorded("tf32", "tf32", ("f32",), ("nn",), ((48, 80, 48),), "split12x4"),
    Recorded("tf32", "tf32", ("f32",), ("nn",), ((100, 200, 72),), "split6x12"),
    *_FP8,
)
LIBRARIES: dict[tuple[str, str], tuple[Recorded, ...]] = {("cublas 13.0", "H200"): _H200}


@dataclass(frozen=True)
class Library:
    """Summation orders of one library's products on one GPU; `nbtc.library` finds it, `order=` takes it.

    fast_accum: fp8 products chain all of K; False: they are promoted to float32 every 128 elements.  tf32: float32
    operands are read as tf32; False: they are multiplied as they are, without tensor cores.
    """

    name: str
    gpu: str
    fast_accum: bool = False
    tf32: bool = True

    def order(
        self, m: int, n: int, k: int, *, a: object, b: object = None, out: object = None, layout: str = "nn",
        bias: bool = False, batch: int = 0,
    ) -> Order:  # fmt: skip
        """The order of a product of M x N x K: the recorded one, or a guess, which its `.evidence` says.

        a, b: formats of the multiplicands (b: as a).  out: format of the result (default: the accumulator's).  layout:
        "nn" when B is row-major, "nt" when it is column-major, "tn" and "tt" when A is column-major too.  bias: a
        vector is added to every row.  batch: of how many products (0: it is no batch).  Raises OptionError for another
        layout.

        `.evidence` of the order is "recorded" for shapes that were recorded, "rule" where cuBLAS' heuristic was asked
        for the shape or for those around it, "guess" elsewhere: as for the nearest shape, or one chain in ascending k
        (promoted every 128 elements for fp8 without fast accumulation).  A guess warns, once a shape.

        >>> library("cublas 13.0", gpu="H200").order(33, 65, 136, a="bf16", out="f32").name
        'k8:split9x16'
        """
        fa = as_format(a)
        fb = fa if b is None else as_format(b)
        if layout not in ("nn", "nt", "tn", "tt"):
            raise OptionError(f'layout={layout!r} is none of "nn", "nt" (B column-major), "tn" (A column-major), "tt"')
        result = {"f64": "f64", "int": "s32"}.get(fa.name if fa.name == "f64" else fa.kind, "f32")
        result = result if out is None else as_format(out).name
        names = {"f32": "tf32"} if self.tf32 else {"tf32": "f32"}
        ask = (names.get(fa.name, fa.name), names.get(fb.name, fb.name))
        for row in LIBRARIES[self.name, self.gpu]:
            kind = (row.a, row.b) == ask and result in row.out and layout in row.layout and self.fast_accum in row.fast
            if kind and (m, n, k) in row.sizes:
                evidence = f"recorded: {self.name} on {self.gpu}, {m} x {n} x {k} {layout}"
                return replace(order_row(row.order), evidence=evidence)
        fp8 = fa.kind == fb.kind == "float" and fa.bits == fb.bits == 8
        op = "scaled" if fp8 else "bmm" if batch else "addmm" if bias else "mm"
        shape = f"{self.name} on {self.gpu}, {m} x {n} x {k} {layout}"
        known = "e5m2" if fp8 and ask != ("e4m3", "e4m3") else ask[0]  # as e4m3, of which shapes are recorded
        found = find(op, known, layout, (batch, m, n, k)) if fp8 or ask[0] == ask[1] else None
        if fp8 and not self.fast_accum and found is not None:  # all 375 recorded ones are, split or not
            evidence = "recorded" if found.kind == "recorded" else "rule"
            found = Found("promote128" if k > 128 else "seq", evidence, "promoted every 128 elements")
        if found is not None:
            text = f"{found.kind}: {shape}{found.why and f' ({found.why})'}"
            if found.kind == "guess":
                warn(f"{text}; {found.order!r} is used, its bits may differ", GuessedOrderWarning)
            return replace(order_row(found.order), evidence=text)
        guess = order_row("promote128" if fp8 and not self.fast_accum and k > 128 else lone(ask[0]))
        text = f"guess: no recording of {self.name} on {self.gpu} for {m} x {n} x {k} {ask[0]} x {ask[1]} {layout}"
        warn(f"{text}; {guess.name!r} is used, its bits may differ", GuessedOrderWarning)
        return replace(guess, evidence=text)


def library(name: str, *, gpu: str, fast_accum: bool = False, tf32: bool = True) -> Library:
    """The recorded summation orders of a library's matrix products on a GPU, for `order=` of `matmul` and `plan`.

    name: the library, "cublas 13.0".  gpu: the GPU, "H200".  fast_accum: what `torch._scaled_mm` calls so, for fp8
    products.  tf32: whether float32 operands are read as tf32, as `torch.set_float32_matmul_precision("high")` allows;
    False: PyTorch's default, fused multiply-adds in float32.  Raises OptionError for a pair that was not recorded.  The
    library rounds tf32 operands to nearest even before it multiplies, as `nbtc.convert(x, "tf32")` does.

    >>> import numpy as np, nbtc
    >>> cublas = nbtc.library("cublas 13.0", gpu="H200")
    >>> x = np.ones((64, 64), np.float32)
    >>> print(nbtc.plan(x, x, order=cublas).order.name)
    slice64/2
    >>> nbtc.library("cublas 13.0", gpu="H200", tf32=False).order(300, 384, 1536, a="f32").name
    'fma:slice104/13'
    """
    if not (isinstance(name, str) and isinstance(gpu, str)) or (name, gpu) not in LIBRARIES:
        have = ", ".join(f"nbtc.library({n!r}, gpu={g!r})" for n, g in LIBRARIES)
        raise OptionError(f"library {shown(name)} on gpu={shown(gpu)} was not recorded; recorded: {have}")
    return Library(name, gpu, fast_accum, tf32)
