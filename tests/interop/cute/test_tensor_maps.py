"""Tensor maps that CuTe DSL's host code makes, read back: every field, and maps with bits that nobody has seen."""

import ctypes

import cutlass
import ml_dtypes
import numpy as np
import pytest
from cutlass import cute
from cutlass.cute.nvgpu import cpasync
from numpy.lib.stride_tricks import as_strided

import nbtc
from nbtc import errors
from nbtc.cute.emulated import Emulated
from nbtc.cute.tensor_maps import decoded
from nbtc.executor.transfer.tensor_map import BYTES


@cute.kernel
def prefetch(atom: cute.CopyAtom):
    cpasync.prefetch_descriptor(atom)


@cute.jit
def describe(x: cute.Tensor, box: cutlass.Constexpr, swizzle: cutlass.Constexpr, internal: cutlass.Constexpr):
    plain = cute.make_ordered_layout(box, order=tuple(range(len(box))))
    smem = (
        plain
        if cutlass.const_expr(swizzle == 0)
        else cute.make_composed_layout(cute.make_swizzle(swizzle, 4, 3), 0, plain)
    )
    load = cpasync.CopyBulkTensorTileG2SOp()
    atom, _ = cpasync.make_tiled_tma_atom(load, x, smem, box, internal_type=internal)
    prefetch(atom).launch(grid=[1, 1, 1], block=[32, 1, 1])


@pytest.fixture
def encoded(compiled, monkeypatch):
    """The 128 bytes that host code makes of an array (first index contiguous, as CuTe writes them) and a box."""

    def encode(x, box, swizzle=0, internal=None):
        t = nbtc.cute.tensor(x, assumed_align=16)
        found = []
        monkeypatch.setattr(
            Emulated, "_launch", lambda _, asked: found.append(ctypes.string_at(asked.parameters[0], BYTES))
        )
        nbtc.cute.emulate(compiled(describe, t, box, swizzle, internal))(t)
        return found[0]

    return encode


TYPES = [np.uint8, np.int8, np.uint16, np.uint32, np.int64, np.float16, np.float32, np.float64, ml_dtypes.bfloat16]
TYPES += [ml_dtypes.float8_e5m2]
NAMES = {np.int64: "u64"}  # CuTe DSL makes no difference between signed and unsigned elements


@pytest.mark.parametrize("dtype", TYPES)
def test_element_types(encoded, dtype):
    x = np.zeros((256, 128), dtype)
    wanted = nbtc.TensorMap(x, (16, 8), dtype=NAMES.get(dtype))
    assert decoded(encoded(x.T, (16, 8))) == bytes(wanted)


def test_rounded_elements(encoded):
    x = np.zeros((256, 128), np.float32)
    assert decoded(encoded(x.T, (8, 16), 0, cutlass.TFloat32)) == bytes(nbtc.TensorMap(x, (8, 16), dtype="tf32"))


@pytest.mark.parametrize(("swizzle", "name"), [(1, "32B"), (2, "64B"), (3, "128B")])
def test_swizzles(encoded, swizzle, name):
    x, box = np.zeros((40, 128), np.float16), (8 << swizzle, 8)
    assert decoded(encoded(x.T, box, swizzle)) == bytes(nbtc.TensorMap(x, box, swizzle=name))


@pytest.mark.parametrize("box", [(64,), (64, 8), (64, 8, 2), (64, 8, 2, 3), (32, 4, 2, 3, 4)])
def test_dimensions(encoded, box):
    x = np.zeros((5, 7, 9, 12, 136)[5 - len(box) :], np.float16)
    assert decoded(encoded(x.T, box)) == bytes(nbtc.TensorMap(x, box))


def test_strides_of_more_than_36_bits(encoded):
    strides = (7 << 36, (1 << 38) + 16, 3 << 36, 1 << 37, 2)
    x = as_strided(np.zeros(8, np.float16), (4, 4, 4, 64, 128), strides)
    assert decoded(encoded(x.T, (64, 8, 1, 1, 1))) == bytes(nbtc.TensorMap(x, (64, 8, 1, 1, 1)))


@pytest.mark.parametrize("bit", [64 + 11, 64 + 15, 64 + 17, 3 * 64 + 48, 6 * 64 + 32, 7 * 64 + 40])
def test_bits_of_unknown_meaning(encoded, bit):
    raw = int.from_bytes(encoded(np.zeros((40, 128), np.float16).T, (64, 8)), "little") | 1 << bit
    with pytest.raises(errors.UnsupportedInstructionError, match="unknown layout"):
        decoded(raw.to_bytes(BYTES, "little"))
