"""Which lane's value stays where lanes of a warp store to one address: an H200's answers, which never varied."""

from pathlib import Path

import numpy as np
import pytest

import nbtc
from tests.executor.memory.colliding import SIZES, text, winners

with np.load(Path(__file__).parents[2] / "golden" / "collisions.npz") as file:
    RECORDED = dict(file)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("space", ["shared", "global"])
def test_the_lane_that_wins(space, size):
    """The lowest of all with up to 4 bytes, of the upper half of the warp with 8, of its last quarter with 16."""
    slots = RECORDED["patterns"]
    out = np.zeros(512 * len(slots), np.uint8)
    nbtc.load(text(space, size))["k"].launch(len(slots), 32, (slots, out))
    assert np.array_equal(winners(out, size), RECORDED[f"{space} {size}"])
