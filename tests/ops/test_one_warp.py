"""A single warp takes a short way into the kernel: the same bits as in a batch, however its images lie in memory."""

from __future__ import annotations

import numpy as np
import pytest

import nbtc
from nbtc.compiler.jit import call, jit
from nbtc.errors import FormatError, MetadataError, OptionError, ShapeError, UnsupportedInstructionError

I = nbtc.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")  # noqa: E741


def read_only(x):
    y = x.copy()
    y.flags.writeable = False
    return y


def strided(x):
    return np.repeat(x, 2, axis=1)[:, ::2]


@pytest.mark.parametrize("lie", [np.copy, read_only, strided, np.asfortranarray, lambda x: x.astype(">u4")])
def test_memory_does_not_matter(lie):
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 2**32, (2, 32, n), np.uint32) & np.uint32(0x3B3B3B3B) for n in (4, 2, 4)]
    images[1][1, 0, 0] = 0x7C00  # the second warp has an Inf, which is for the general path
    together = I(*images)
    for w in range(2):
        assert (I(*(lie(x[w]) for x in images)) == together[w]).all()
        assert (I(*(lie(x[w]) for x in images), threads=1) == together[w]).all()


def test_the_checks_of_a_batch_are_made():
    a, b, c = (np.zeros((32, n), np.uint32) for n in (4, 2, 4))
    for error, change in (
        (OptionError, {"threads": 0}),
        (OptionError, {"selector": 1}),
        (OptionError, {"byte_a": 1}),
        (FormatError, {"c": c.astype(np.int64)}),
        (ShapeError, {"c": c[:, :3]}),
        (MetadataError, {"meta": c[:, 0]}),
        (UnsupportedInstructionError, {"arch": "sm_75"}),
    ):
        with pytest.raises(error):
            I(**{"a": a, "b": b, "c": c, **change})


def test_a_direct_call_compiles_for_the_types_it_is_told():
    kernel = jit(lambda x: x[0] + x[1], cached=False)
    assert call(kernel, "integers", np.array([1, 2])) == 3
    assert call(kernel, "floats", np.array([0.5, 1.0])) == 1.5
    assert call(kernel, "integers", np.array([3, 4])) == 7
    assert len(kernel.overloads) == 2
