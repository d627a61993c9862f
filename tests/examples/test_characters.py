"""The character model learns, and nothing of it is left to PyTorch."""

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

from nbtc.examples import characters

pytestmark = pytest.mark.filterwarnings("ignore::nbtc.errors.NbtcWarning", "ignore::DeprecationWarning")


def test_it_learns():
    training = characters.Training("H200")
    found = [training.step() for _ in range(12)]
    assert found == sorted(found, reverse=True) and found[-1] < 0.95 * found[0]
    assert not training.compiled.report().left and not training.update.report().left
