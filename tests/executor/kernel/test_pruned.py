"""What stays of functions in which products fuse: all that does something, and what writes the registers it reads."""

import pytest

from nbtc.executor.kernel.blocks import ARITHMETIC
from nbtc.executor.kernel.contract import contract
from nbtc.executor.kernel.link import link
from nbtc.executor.kernel.reads import Reads
from nbtc.executor.kernel.values import BEFORE
from nbtc.executor.rows.uses import row_of
from nbtc.executor.text.parse import parse
from nbtc.testing.memory_programs import random_memory_program
from nbtc.testing.sum_programs import random_sum_program


def effects(function):
    """What does something beside writing registers; branches to what comes after them anyway may go."""
    rows = ((i, row_of(i.mnemonic)) for i in function.body if i.opcode not in ARITHMETIC and i.opcode != "bra")
    return [i for i, row in rows if row is None or row.action is not None]


def unwritten(function):
    """Registers that are read where nothing has written them on any way."""
    sources = Reads(function).values.sources
    return {name for found in sources for name, places in found.items() if places <= {BEFORE}}


@pytest.mark.parametrize("make", [random_memory_program, random_sum_program])
def test_effects_stay_with_what_they_read(make):
    for seed in range(40):
        for function in link(parse(make(seed).text), "k").functions:
            found = contract(function)
            assert effects(found) == effects(function)
            assert unwritten(found) <= unwritten(function)
