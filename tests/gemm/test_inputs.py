"""Bad input to matmul, gemm and plan: an error of nbtc.errors that helps, before any work, outputs untouched."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

import nbtc
from nbtc import errors
from nbtc.gemm import gemm

M, N, K = 6, 5, 64
HALF = np.float16
MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"


def good(dtype: Any = HALF, **more: Any) -> dict[str, Any]:
    """Operands that multiply, with some of them replaced."""
    return {"a": np.ones((M, K), dtype), "b": np.ones((K, N), dtype)} | more


def zeros(*shape: int, dtype: Any = HALF) -> np.ndarray:
    """Short for an array of zeros."""
    return np.zeros(shape, dtype)


# what is wrong, the arguments, the class, words the message must hold
BAD: list[tuple[str, dict[str, Any], type[Exception], str]] = [
    ("a is 1-D", good(a=zeros(K)), errors.ShapeError, "None, :"),
    ("b is 1-D", good(b=zeros(K)), errors.ShapeError, ":, None"),
    ("a is 0-D", good(a=HALF(1)), errors.ShapeError, "a is a single float16"),
    ("b is None", good(b=None), errors.ShapeError, "array of shape (..., K, N)"),
    ("K differs", good(b=zeros(K + 1, N)), errors.ShapeError, "pass b (..., "),
    ("b transposed", good(b=zeros(N, K)), errors.ShapeError, "swapaxes"),
    ("packed K differs", good(np.uint32, a=np.zeros((M, 3), np.uint32), b=np.zeros((2, N), np.uint32),
                              a_format="s4", b_format="s4"), errors.ShapeError, "K"),
    ("packed and unpacked K differ", good(a=np.zeros((M, 3), np.uint32), b=np.zeros((16, N), ml_dtypes.int4),
                                          a_format="s4"), errors.ShapeError, "K"),
    ("batches differ", good(a=zeros(2, M, K), b=zeros(3, K, N)), errors.ShapeError, "broadcast"),
    ("c's batch differs", good(a=zeros(2, M, K), c=zeros(3, M, N, dtype=np.float32)), errors.ShapeError, "broadcast"),
    ("uint32 a without a format", good(a=np.zeros((M, 2), np.uint32)), errors.FormatError, "a_format"),
    ("uint32 b without a format", good(b=np.zeros((8, N), np.uint32)), errors.FormatError, "b_format"),
    ("int32", good(np.int32), errors.FormatError, "int8"),
    ("int64", good(np.int64), errors.FormatError, "int64"),
    ("int16", good(np.int16), errors.FormatError, "int16"),
    ("complex", good(np.complex64), errors.FormatError, "complex64"),
    ("object", good(object), errors.FormatError, "object"),
    ("text", good(a=np.full((M, K), "x")), errors.FormatError, "a is <U1"),
    ("longdouble", good(b=np.ones((K, N), np.longdouble)), errors.FormatError, f"b is {np.dtype(np.longdouble)}"),
    ("f16 x bf16", good(b=zeros(K, N, dtype=ml_dtypes.bfloat16)), errors.UnsupportedInstructionError, "f16 x bf16"),
    ("f16 x s8", good(b=zeros(K, N, dtype=np.int8)), errors.UnsupportedInstructionError, "s8"),
    ("s8 x s4", good(np.int8, b=zeros(K, N, dtype=ml_dtypes.int4)), errors.UnsupportedInstructionError, "s4"),
    ("f32 x f64", good(np.float32, b=zeros(K, N, dtype=np.float64)), errors.UnsupportedInstructionError, "f64"),
    ("e4m3 x f16", good(a=zeros(M, K, dtype=ml_dtypes.float8_e4m3fn)), errors.UnsupportedInstructionError, "e4m3"),
    ("a_format of another dtype", good(a_format="bf16"), errors.FormatError, "bfloat16"),
    ("b_format of another dtype", good(b_format=nbtc.s8), errors.FormatError, "int8"),
    ("unknown a_format", good(a_format="f12"), errors.FormatError, "f12"),
    ("unknown b_format", good(b_format=3.5), errors.FormatError, "3.5"),
    ("c of wrong shape", good(c=zeros(M, N + 1, dtype=np.float32)), errors.ShapeError, f"{M}, {N}"),
    ("c to be broadcast in M", good(c=zeros(1, N, dtype=np.float32)), errors.ShapeError, f"{M}, {N}"),
    ("c is 1-D", good(c=zeros(N, dtype=np.float32)), errors.ShapeError, f"{M}, {N}"),
    ("c is a number", good(c=np.float32(1)), errors.ShapeError, f"{M}, {N}"),
    ("f64 c, f32 accumulator", good(c=zeros(M, N, dtype=np.float64)), errors.FormatError, "float32"),
    ("f32 c, f16 accumulator", good(c=zeros(M, N, dtype=np.float32), acc="f16"), errors.FormatError, "float16"),
    ("int64 c", good(np.int8, c=zeros(M, N, dtype=np.int64)), errors.FormatError, "int32"),
    ("f16 c, s32 accumulator", good(np.int8, c=zeros(M, N)), errors.FormatError, "int32"),
    ("out of wrong shape", good(out=zeros(N, M, dtype=np.float32)), errors.ShapeError, "out"),
    ("out lacks the batch", good(a=zeros(2, M, K), out=zeros(M, N, dtype=np.float32)), errors.ShapeError, "out"),
    ("out of wrong dtype", good(out=zeros(M, N)), errors.FormatError, "float32"),
    ("out of the other byte order", good(out=zeros(M, N, dtype=">f4")), errors.FormatError, "float32"),
    ("out is a list", good(out=[[0.0] * N] * M), errors.FormatError, "list"),
    ("out is read-only", good(out=np.broadcast_to(np.float32(0), (M, N))), errors.OptionError, "read-only"),
    ("rows of out are one row", good(out=as_strided(zeros(N, dtype=np.float32), (M, N), (0, 4))), errors.OptionError,
     "share memory"),
    ("rows of out overlap", good(out=as_strided(zeros(M + N, dtype=np.float32), (M, N), (4, 4))), errors.OptionError,
     "share memory"),
    ("f64 accumulator of f16", good(acc="f64"), errors.UnsupportedInstructionError, "f64"),
    ("s32 accumulator of f16", good(acc="s32"), errors.UnsupportedInstructionError, "s32"),
    ("f16 accumulator of bf16", good(ml_dtypes.bfloat16, acc="f16"), errors.UnsupportedInstructionError, "f16"),
    ("f32 accumulator of s8", good(np.int8, acc=np.float32), errors.UnsupportedInstructionError, "f32"),
    ("unknown accumulator", good(acc="f13"), errors.FormatError, "f13"),
    ("bf16 on sm_75", good(ml_dtypes.bfloat16, arch="sm_75"), errors.UnsupportedInstructionError, "sm_80"),
    ("fp8 on sm_80", good(ml_dtypes.float8_e5m2, arch="sm_80"), errors.UnsupportedInstructionError, "sm_89"),
    ("wgmma on sm_80", good(arch="sm_80", instruction="wgmma"), errors.UnsupportedInstructionError, "sm_90"),
    ("wgmma of f64", good(np.float64, instruction="wgmma"), errors.UnsupportedInstructionError, "wgmma"),
    ("wmma of fp8", good(ml_dtypes.float8_e4m3fn, instruction="wmma"), errors.UnsupportedInstructionError, "wmma"),
    ("b1 and on sm_75", good(bool, a=np.ones((M, 128), bool), b=np.ones((128, N), bool), op="and", arch="sm_75"),
     errors.UnsupportedInstructionError, "b1"),
    ("named form on an older arch", good(instruction=MMA, arch="sm_75"), errors.NbtcError, "sm_80"),
    ("named form of other operands", good(ml_dtypes.bfloat16, instruction=MMA), errors.OptionError, "f16 x f16"),
    ("named form of another accumulator", good(instruction=MMA, acc="f16"), errors.OptionError, "f32"),
    ("c and d of two types", good(instruction="mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f16"),
     errors.NbtcError, "m16n8k8"),
    ("sparse form", good(instruction="mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"),
     errors.OptionError, "dense"),
    ("no product", good(instruction="ldmatrix.sync.aligned.m8n8.x4.shared.b16"), errors.NbtcError, "ldmatrix"),
    ("illegal text", good(instruction="mma.sync.aligned.m16n8k17.row.col.f32.f16.f16.f32"),
     errors.ParseError, "m16n8k"),
    ("no text at all", good(instruction=""), errors.NbtcError, "instruction"),
    ("unknown family", good(instruction="hmma"), errors.OptionError, "mma, wgmma, wmma, tcgen05"),
    ("instruction=3", good(instruction=3), errors.OptionError, "3"),
    ("saturate on f16", good(saturate=True), errors.OptionError, "saturate"),
    ("saturate on f64", good(np.float64, saturate=True), errors.OptionError, "saturate"),
    ("saturate on b1", good(bool, saturate=True), errors.OptionError, "saturate"),
    ("saturate='yes'", good(np.int8, saturate="yes"), errors.OptionError, "saturate"),
    ("saturate with a form that has none", good(np.int8, saturate=True,
     instruction="mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"), errors.OptionError, "satfinite"),
    ("op on f16", good(op="xor"), errors.OptionError, "op="),
    ("op on s8", good(np.int8, op="and"), errors.OptionError, "op="),
    ("op='or'", good(bool, op="or"), errors.OptionError, "'or'"),
    ("op against the form", good(bool, op="and",
     instruction="mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc"), errors.OptionError, "xor"),
    ("k_split=0", good(k_split=0), errors.OptionError, "k_split"),
    ("k_split=-8", good(k_split=-8), errors.OptionError, "k_split"),
    ("k_split=1.5", good(k_split=1.5), errors.OptionError, "k_split"),
    ("k_split=True", good(k_split=True), errors.OptionError, "k_split"),
    ("k_split='128'", good(k_split="128"), errors.OptionError, "k_split"),
    ("threads=0", good(threads=0), errors.OptionError, "threads"),
    ("threads=-1", good(threads=-1), errors.OptionError, "threads"),
    ("threads=1.5", good(threads=1.5), errors.OptionError, "threads"),
    ("threads=True", good(threads=True), errors.OptionError, "threads"),
    ("progress=3", good(progress=3), errors.OptionError, "progress"),
    ("progress='bar'", good(progress="bar"), errors.OptionError, "progress"),
    ("arch='sm_61'", good(arch="sm_61"), errors.ArchError, "sm_61"),
    ("arch='hopper'", good(arch="hopper"), errors.ArchError, "hopper"),
    ("arch=None", good(arch=None), errors.ArchError, "None"),
    ("arch=9.0", good(arch=9.0), errors.ArchError, "9.0"),
]  # fmt: skip


def raises(call: Callable[..., Any], arguments: dict[str, Any], kind: type[Exception], word: str) -> None:
    """The call raises that error, whose message helps, and leaves every array as it was."""
    arrays = {k: v for k, v in arguments.items() if isinstance(v, np.ndarray)}
    before = {k: v.tobytes() if v.dtype != object else v.tolist() for k, v in arrays.items()}
    with pytest.raises(kind) as caught:
        call(**arguments)
    error, text = caught.value, str(caught.value)
    assert isinstance(error, errors.NbtcError) and isinstance(error, ValueError | TypeError), repr(error)
    assert len(text) >= 40 and word in text, text
    assert before == {k: v.tobytes() if v.dtype != object else v.tolist() for k, v in arrays.items()}


@pytest.mark.parametrize(("arguments", "kind", "word"), [x[1:] for x in BAD], ids=[x[0] for x in BAD])
def test_matmul_raises(arguments: dict[str, Any], kind: type[Exception], word: str) -> None:
    """Each bad call raises, with an out that must stay as it is when the call brings none."""
    raises(nbtc.matmul, arguments, kind, word)
    if "out" not in arguments and "a" in arguments:
        out = np.full((M, N), 7, np.float32)
        with pytest.raises((ValueError, TypeError)):
            nbtc.matmul(**arguments, out=out)
        assert (out == 7).all()


@pytest.mark.parametrize(("arguments", "kind", "word"), [x[1:] for x in BAD], ids=[x[0] for x in BAD])
def test_plan_raises_the_same(arguments: dict[str, Any], kind: type[Exception], word: str) -> None:
    """plan answers only what matmul would compute."""
    raises(nbtc.plan, arguments, kind, word)


GEMM_BAD: list[tuple[str, dict[str, Any], type[Exception], str]] = [
    ("alpha is an array", {"alpha": np.ones(2)}, errors.OptionError, "alpha"),
    ("alpha is complex", {"alpha": 1j}, errors.OptionError, "alpha"),
    ("alpha is text", {"alpha": "2"}, errors.OptionError, "alpha"),
    ("beta is None", {"beta": None}, errors.OptionError, "beta"),
    ("half an alpha for integers", good(np.int8, alpha=0.5, c=None), errors.OptionError, "alpha"),
    ("beta beyond int32", good(np.int8, beta=2**31, c=None), errors.OptionError, "beta"),
    ("infinite beta for integers", good(np.int8, beta=np.inf, c=None), errors.OptionError, "beta"),
    ("c of wrong dtype", {"c": zeros(M, N, dtype=np.float64)}, errors.FormatError, "float32"),
    ("f16 c of an integer product", good(np.int8, c=zeros(M, N)), errors.FormatError, "int32"),
    ("c of wrong shape", {"c": zeros(N, M, dtype=np.float32)}, errors.ShapeError, "c has shape"),
    ("c is 1-D", {"c": zeros(N, dtype=np.float32)}, errors.ShapeError, "c has shape"),
    ("out of wrong dtype", {"out": zeros(M, N)}, errors.FormatError, "out"),
    (
        "out of c's shape, not dtype",
        {"c": zeros(M, N), "out": zeros(M, N, dtype=np.float32)},
        errors.FormatError,
        "out",
    ),
    ("out of wrong shape", {"out": zeros(M, K, dtype=np.float32)}, errors.ShapeError, "out"),
    ("K differs", {"b": zeros(K + 1, N)}, errors.ShapeError, "and must agree"),
    ("threads=0", {"threads": 0}, errors.OptionError, "threads"),
]


@pytest.mark.parametrize(("change", "kind", "word"), [x[1:] for x in GEMM_BAD], ids=[x[0] for x in GEMM_BAD])
def test_gemm_raises(change: dict[str, Any], kind: type[Exception], word: str) -> None:
    """alpha, beta, c and out of gemm, and what it shares with matmul."""
    raises(gemm, good(alpha=1.0, beta=1.0, c=zeros(M, N, dtype=np.float32)) | change, kind, word)


@pytest.mark.parametrize("call", [nbtc.matmul, nbtc.plan])
def test_unknown_keywords_raise(call: Callable[..., Any]) -> None:
    """As any Python call with a keyword that does not exist."""
    with pytest.raises(TypeError, match="scale"):
        call(**good(scale=2))


def test_wrong_input_raises_before_progress() -> None:
    """Nothing is announced for a call that computes nothing."""
    seen: list[tuple[int, int]] = []
    with pytest.raises(errors.ShapeError):
        nbtc.matmul(zeros(M, K), zeros(K, N), zeros(M, K, dtype=np.float32), progress=lambda *x: seen.append(x))
    assert not seen


@pytest.mark.parametrize("call", [nbtc.matmul, gemm, nbtc.plan], ids=["matmul", "gemm", "plan"])
def test_calls_have_the_documented_keywords(call: Callable[..., Any]) -> None:
    """Every option of matmul is taken by each, by its name."""
    options = {
        "arch": 90, "acc": nbtc.f32, "instruction": "mma", "a_format": "f16", "b_format": np.float16, "saturate": False,
        "op": None, "k_split": None, "out": None, "threads": 1, "progress": False,
    }  # fmt: skip
    first = good() if call is not gemm else good(alpha=1, beta=0, c=None)
    assert call(**first, **options) is not None
    assert inspect.getdoc(call)
