"""Families of rows that are imported when a program has one of their opcodes."""

import subprocess
import sys

import pytest

from nbtc.executor.emit.slots import WATCH_WORDS
from nbtc.executor.rows import actions
from nbtc.executor.watch import service

PROGRAM = """
from nbtc.warmup import PROGRAM
nbtc.load(PROGRAM)["reverse"][1, 64](np.zeros(64, np.int32))
"""
PRODUCT = "nbtc.matmul(np.ones((16, 16), np.float16), np.ones((16, 16), np.float16))"


@pytest.mark.parametrize(("imported", "opcodes"), actions.LATER.items())
def test_they_have_rows_of_all_opcodes_that_lead_to_them_and_of_no_others(imported, opcodes):
    assert {action.opcode for family in imported() for action in family.ACTIONS} == set(opcodes)


def test_rows_of_an_opcode_come_from_all_families():
    names = {action.emit.__module__.rpartition(".")[2] for action in actions.rows_of("cp")}
    assert {"copies", "bulk", "bulk_tensor"} <= names
    assert actions.rows_of("frob") == () and "frob" not in actions.opcodes() and {"st", "mma"} <= actions.opcodes()


def test_functions_of_the_checked_mode_take_the_words_that_their_slots_say():
    assert tuple(service.words(kernel) for kernel in service.KERNELS) == WATCH_WORDS


@pytest.mark.parametrize(
    ("call", "later"),
    [
        (
            PROGRAM,
            "executor.matrix executor.watch executor.texture.texture executor.transfer.bulk ops gemm",
        ),
        (PRODUCT, "executor ops gemm.block_scaled kernels.block_scaled"),
    ],
)
def test_a_first_call_imports_nothing_that_it_does_without(call, later):
    names = tuple(f"nbtc.{name}" for name in later.split())
    text = f"import sys, numpy as np, nbtc\n{call}\nprint([name for name in sys.modules if name.startswith({names})])"
    run = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n", run.stdout
