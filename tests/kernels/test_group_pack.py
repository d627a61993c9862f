"""Packed e2m1 operands: elements, factors and bounds against the definitions, at the edges of a step and a panel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from nbtc.compiler.machine_code.emitted import run_in_words
from nbtc.formats.arrays import from_bits
from nbtc.kernels.block_scaled import group_pack
from nbtc.kernels.block_scaled.group_dot import C_PLACES, HEAD, LANES, OFFSET, STEP, WORDS, PackedColumns, PackedRows
from nbtc.kernels.block_scaled.group_pack import BIAS32, GroupedColumnsArguments, GroupedOperand, GroupedRowsArguments

SCALES = [("ue8m0", 2), ("ue8m0", 4), ("ue4m3", 4)]
NAN = {"ue8m0": 0xFF, "ue4m3": 0x7F}


def operand(rng: Any, size: int, k: int, steps: int, chunks: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Element codes [line][k] with blocks of zeros, and scale codes [line][block]."""
    codes = rng.integers(0, 16, (size, k), dtype=np.uint8)
    scales = rng.integers(90, 110, (size, steps * chunks), dtype=np.uint8)
    codes[1, : STEP // chunks] &= 8  # zeros of both signs
    codes[2] &= 8
    return codes, scales


def definition(codes: Any, scales: Any, scale: str, chunks: int, steps: int) -> tuple[Any, Any, Any, Any]:
    """Twice the elements [line][step][64], values [line][block], least and largest exponent [line][step]."""
    padded = np.zeros((len(codes), steps * STEP), np.uint8)
    padded[:, : codes.shape[1]] = codes
    doubled = (2 * from_bits(padded, "e2m1").astype(np.float32)).astype(np.int8)
    nan = scales == NAN[scale]
    values = np.where(nan, 1.0, from_bits(np.where(nan, 1, scales).astype(np.uint8), scale).astype(np.float64))
    exponents = np.frexp(values)[1] - 1
    exponents[nan] = group_pack.NAN_EXPONENT
    bounds = np.zeros((len(codes), steps, 2), np.int64)
    for line in range(len(codes)):
        low = high = 0
        for s in range(steps):
            blocks = [s * chunks + g for g in range(chunks)]
            part = doubled[line, s * STEP : (s + 1) * STEP].reshape(chunks, -1)
            used = [exponents[line, n] for n, x in zip(blocks, part, strict=True) if x.any()]
            low, high = (min(used), max(used)) if used else (low, high)
            bounds[line, s] = low, high
    return doubled.reshape(len(codes), steps, STEP), values, bounds, nan.any(1)


@pytest.mark.parametrize(("scale", "chunks"), SCALES)
def test_rows_are_packed_as_defined(scale: str, chunks: int) -> None:
    rng, m, k, rows, steps = np.random.default_rng(0), 6, 150, 8, 3
    codes, scales = operand(rng, m, k, steps, chunks)
    scales[3, 1] = NAN[scale]
    packed = PackedRows(
        np.full(rows * steps * STEP, 99, np.int8),
        np.full(rows * steps * chunks, 9.0),
        np.full(rows * steps * (HEAD + chunks), 99, np.int32),
    )
    special = np.zeros(m, np.bool_)
    source = GroupedOperand(codes.reshape(-1), scales.reshape(-1), k, m, steps)
    arguments = GroupedRowsArguments(source, group_pack.table(scale), packed, special, 0, rows)
    run_in_words(group_pack.packers(scale, chunks)[0], arguments)
    doubled, values, bounds, nan = definition(codes, scales, scale, chunks, steps)
    elements = packed.elements.reshape(rows, steps, STEP)
    assert (elements[:m] == doubled).all()
    assert not elements[m:].any()
    factors = packed.factors.reshape(rows, steps * chunks)
    assert (factors[:m] == values / 4).all()
    assert not factors[m:].any()
    records = packed.records.reshape(rows, steps, HEAD + chunks)
    assert (records[:m, :, HEAD:] == -OFFSET * doubled.reshape(m, steps, chunks, -1).sum(-1, dtype=np.int64)).all()
    assert (records[:m, :, 0] == bounds[:, :, 1] - C_PLACES + BIAS32).all()
    limit = 35 - 2 - 2 * (3 if scale == "ue4m3" else 0)
    assert (records[:m, :, 1] == bounds[:, :, 0] + limit + BIAS32 + 1).all()
    assert (special == nan).all()


@pytest.mark.parametrize(("scale", "chunks"), SCALES)
def test_columns_are_packed_as_defined(scale: str, chunks: int) -> None:
    rng, n, k, panels, steps = np.random.default_rng(1), 21, 150, 2, 3
    codes, scales = operand(rng, n, k, steps, chunks)
    scales[4, 2] = NAN[scale]
    packed = PackedColumns(
        np.full(panels * steps * WORDS * LANES * 4, 99, np.uint8),
        np.full(panels * steps * chunks * LANES, 9.0),
        np.full(panels * steps * 2 * LANES, 99, np.int32),
    )
    special = np.zeros(n, np.bool_)
    source = GroupedOperand(codes.T.copy().reshape(-1), scales.T.copy().reshape(-1), k, n, steps)
    arguments = GroupedColumnsArguments(source, group_pack.table(scale), packed, special, 0, panels)
    run_in_words(group_pack.packers(scale, chunks)[1], arguments)
    doubled, values, bounds, nan = definition(codes, scales, scale, chunks, steps)
    words = packed.words.reshape(panels, steps, WORDS, LANES, 4).transpose(0, 3, 1, 2, 4).reshape(-1, steps, STEP)
    assert (words[:n] == doubled + OFFSET).all()
    assert (words[n:] == OFFSET).all()
    factors = packed.factors.reshape(panels, steps * chunks, LANES).transpose(0, 2, 1).reshape(-1, steps * chunks)
    assert (factors[:n] == values).all()
    assert not factors[n:].any()
    records = packed.records.reshape(panels, steps, 2, LANES).transpose(0, 3, 1, 2).reshape(-1, steps, 2)
    assert (records[:n] == bounds[:, :, ::-1]).all()
    assert (special == nan).all()
