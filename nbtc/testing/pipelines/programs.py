"""Programs of producers and consumers drawn at random."""

from __future__ import annotations

from typing import Any

import numpy as np

from nbtc.instructions import Instruction, instructions
from nbtc.testing.copies.tensors import Tensor
from nbtc.testing.pipelines.model import ROWS, SPANS, Pipeline
from nbtc.testing.pipelines.text import Text
from nbtc.testing.warpgroup_programs import held

COLUMNS = (16, 32, 48, 64)  # of B, in halves of whole core matrices
TYPES = {"f16": ("f16",), "bf16": ("bf16",), "tf32": ("tf32", "f32")}  # of a tensor of a format's elements; others: u8


def _forms() -> list[list[Instruction]]:
    """Dense forms of some widths, by their formats."""
    known: dict[tuple[str, str], list[Instruction]] = {}
    for form in instructions(family="wgmma.mma_async", arch="sm_90"):
        if form.executable and form.shape and form.shape[1] in COLUMNS:
            a, b, _ = held(form)
            known.setdefault((a.format.name, b.format.name), []).append(form)
    return list(known.values())


def random_pipeline_program(seed: int) -> Pipeline:
    """A program for sm_90a, the same for the same seed."""
    rng = np.random.default_rng(seed)

    def one(*of: Any) -> Any:
        return of[rng.integers(len(of))]

    form = one(*one(*_forms()))
    cluster, consumers, stages = int(one(1, 2, 2)), int(one(1, 2)), int(one(2, 3, 4))
    turns, tiles, swizzle = int(rng.integers(1, 9)), int(rng.integers(1, 4)), one(*SPANS)
    blocks, shares, registers = cluster * int(one(1, 2)), cluster == 2 and rng.random() < 0.7, rng.random() < 0.3
    a, b = one(("tensor", "tensor"), ("tensor", "bulk"), ("bulk", "tensor"), ("async", "tensor"), ("bulk", "async"))
    if shares and b == "async":
        b = "bulk"
    in_flight = 0 if registers else int(rng.integers(0, min(2, stages - 1, turns) + 1))
    made = Pipeline(
        "", form, cluster, blocks, consumers, stages, tiles, turns, swizzle, a, b, shares, registers, in_flight,
        bool(rng.random() < 0.4), consumers == 2 and rng.random() < 0.6, bool(rng.random() < 0.5),
    )  # fmt: skip
    sides = held(form)
    for name, how, rows, most in (
        ("a", a, ROWS, blocks * tiles * consumers * ROWS),
        ("b", b, made.columns // (2 if shares else 1), blocks * tiles // (2 if shares else 1) * made.columns),
    ):
        if how == "tensor":
            kind = one(*TYPES.get(sides["ab".index(name)].format.name, ("u8",)))
            size = {"f16": 2, "bf16": 2, "u8": 1}.get(kind, 4)
            box = made.span // size, rows
            shape = max(1, most - int(one(0, 0, 3, 40))), max(1, turns * box[0] - int(one(0, 0, 1, 16 // size, 9)))
            pitch, oob = -(-shape[1] * size // 16) * 16, one("zero", "nan") if kind != "u8" else "zero"
            tensor = Tensor(shape, pitch, kind, size, box, swizzle, oob, (1, 1))
            made = made._replace(a=tensor) if name == "a" else made._replace(b=tensor)
    return made._replace(text=Text(made).whole())
