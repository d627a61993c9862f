"""Textures and surfaces against an H100's recorded results, bit for bit."""

from functools import cache

import numpy as np
import pytest

import nbtc
from nbtc.executor.texture.objects import ObjectKind, objects
from nbtc.testing import assert_bits_equal
from tests.executor.texture.texture_programs import PROGRAM, array, body, image, recorded, sampler

CASES, _ = recorded()


@cache
def kernel(text):
    return nbtc.load(PROGRAM.format(body=text))["k"]


@pytest.mark.parametrize("case", CASES, ids=[c["name"] for c in CASES])
def test_every_recorded_case(case):
    texels, coords, want = (array(case[part]) for part in ("data", "coords", "out"))
    surface = case["op"] in ("suld", "sust")
    given = (
        (ObjectKind.SURFACE, image(case, texels))
        if surface
        else (ObjectKind.TEXTURE, image(case, texels), sampler(case))
    )
    handle, out = objects.add(*given), np.zeros((len(coords), 4), np.uint32)
    try:
        kernel(body(case))[-(-len(coords) // 64), 64](handle, coords, out, len(coords))
    finally:
        assert objects.remove(handle, ObjectKind.SURFACE if surface else ObjectKind.TEXTURE)
    assert_bits_equal(texels.view(np.uint8) if case["op"] == "sust" else out, want)
