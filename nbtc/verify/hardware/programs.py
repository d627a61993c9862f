"""Trials of whole programs, as nbtc's executor runs them: random structured ones, and the kernels of other trials."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise

import numpy as np

from nbtc.executor.transfer.tensor_map import PixelBox
from nbtc.formats.table import FORMATS, Format
from nbtc.isa.archs import Target
from nbtc.testing.copies.memories import IMAGE, MEMORY, SOURCE
from nbtc.testing.copies.programs import THREADS, CopyProgram, random_copy_program
from nbtc.testing.copies.tensors import Tensor
from nbtc.testing.pipelines.model import Pipeline
from nbtc.testing.pipelines.programs import random_pipeline_program
from nbtc.testing.product_programs import MODERATE, REGISTERS, random_product_program
from nbtc.testing.programs import Program, random_program
from nbtc.testing.sum_programs import STORES, SumProgram, random_sum_program
from nbtc.testing.warpgroup_programs import WarpgroupProgram, held, random_warpgroup_program
from nbtc.verify.hardware import draws
from nbtc.verify.hardware.products import metadata
from nbtc.verify.hardware.trial import Array, Emulated, Map, Threads, Trial
from nbtc.verify.text import ENTRY

NAME = "k"  # the kernel of a random program
LANES = 32
WARPS = 256  # of a program of products


def trials(count: int, target: Target, first: int = 0) -> Iterator[Trial]:
    """Random programs; a trial has one block more or less as the program wants, so it runs once."""
    for seed in range(first, first + count):
        program = random_program(seed)
        body = _renamed(program.text)
        yield Trial(
            f"random program {seed}", body, program.block, program.words // program.grid,
            partial(_draw, program), partial(_expect, program, body, str(target)), most=program.grid,
        )  # fmt: skip


def _renamed(text: str) -> str:
    """The kernel of a program, by the name that machines launch."""
    return text.partition(".address_size 64\n")[2].replace(f".entry {NAME}(", f".entry {ENTRY}(")


def _draw(program: Program, rng: np.random.Generator, blocks: int) -> tuple[list[Array], list[Array]]:
    return [], [draws.words(rng, (program.words,))]


def _expect(program: Program, body: str, target: str, inputs: list[Array], before: list[Array]) -> list[Array]:
    found = [x.copy() for x in before]
    Emulated(target).run(body, program.grid, program.block, 0, inputs, found)
    return found


def product_trials(count: int, target: Target, first: int = 0) -> Iterator[Trial]:
    """Random programs of matrix products over a few registers."""
    for seed in range(first, first + count):
        body = _renamed(random_product_program(seed, target.arch.name).text)
        expect = _by_executor(body, LANES, 0, target)
        yield Trial(f"random products {seed}", body, LANES, LANES * REGISTERS, _draw_registers, expect, most=WARPS)


def sum_trials(count: int, target: Target, first: int = 0) -> Iterator[Trial]:
    """Random programs of products and sums that may fuse."""
    for seed in range(first, first + count):
        program = random_sum_program(seed)
        body = _renamed(program.text)
        expect = _by_executor(body, LANES, 0, target)
        draw = partial(_draw_rows, program)
        yield Trial(f"random sums {seed}", body, LANES, LANES * STORES, draw, expect, most=WARPS)


def _draw_rows(program: SumProgram, rng: np.random.Generator, blocks: int) -> tuple[list[Array], list[Array]]:
    return [], [program.words(rng, blocks)]


def _draw_registers(rng: np.random.Generator, blocks: int) -> tuple[list[Array], list[Array]]:
    """A third of the warps have any bits, with Inf and NaN, others moderate exponents or tiny numbers."""
    kept = rng.choice(np.array([0xFFFFFFFF, MODERATE, 0x87FF87FF], np.uint32), (blocks, 1, 1))
    return [], [draws.words(rng, (blocks, LANES, REGISTERS)) & kept]


def warpgroup_trials(count: int, target: Target, first: int = 0) -> Iterator[Trial]:
    """Random programs of warpgroups' products; a trial has the blocks that its program wants."""
    for seed in range(first, first + count):
        program = random_warpgroup_program(seed)
        body, outputs = _renamed(program.text), int(np.prod(program.shown))
        expect = _by_executor(body, program.threads, 0, target)
        yield Trial(
            f"random warpgroup products {seed}", body, program.threads, outputs // program.blocks,
            partial(draw_warpgroups, program), expect, most=program.blocks,
        )  # fmt: skip


def draw_warpgroups(
    program: WarpgroupProgram, rng: np.random.Generator, blocks: int
) -> tuple[list[Array], list[Array]]:
    """Images, words of A, metadata and words of D, each part of the formats of one of the program's forms."""
    a, b, d = ([x.format for x in operands] for operands in zip(*map(held, program.accumulators), strict=True))
    images, filled = _parts(rng, program.images, b, np.uint8), _parts(rng, program.filled, a, np.uint32)
    first = _parts(rng, program.first, d, np.uint32)
    first *= first.dtype.type(rng.random() < 0.7)
    notes = metadata(rng, blocks, program.threads)
    return [images, filled, notes, first], [np.zeros(program.shown, np.uint32)]


def copy_trials(count: int, target: Target, first: int = 0) -> Iterator[Trial]:
    """Random programs of copies."""
    for seed in range(first, first + count):
        program = random_copy_program(seed)
        body, maps = _renamed(program.text), copy_maps(program)
        outputs = IMAGE + program.rounds * MEMORY + sum(t.bytes for t in program.tensors if t.written) // program.blocks
        expect = _by_executor(body, THREADS, 0, target, maps)
        yield Trial(
            f"random copies {seed}", body, THREADS, outputs, partial(draw_copies, program), expect,
            most=program.blocks, maps=maps,
        )  # fmt: skip


def copy_maps(program: CopyProgram) -> tuple[Map, ...]:
    """The maps of its tensors, which lie after the source, or after shared memory and memory."""
    read = sum(not t.written for t in program.tensors)
    numbers = {False: iter(range(1, 1 + read)), True: iter(range(3 + read, 3 + len(program.tensors)))}
    return tuple(_map(next(numbers[t.written]), t) for t in program.tensors)


def _map(number: int, t: Tensor) -> Map:
    """The map of a tensor that is the array of a number."""
    box = t.box if t.lower is None else PixelBox(t.lower, t.upper, *t.box)
    options = {"swizzle": t.swizzle, "oob": t.oob, "dtype": t.type, "element_strides": t.steps}
    return Map(number, t.shape, t.strides, t.size, box, options)


def draw_copies(program: CopyProgram, rng: np.random.Generator, blocks: int) -> tuple[list[Array], list[Array]]:
    """Source and tensors that are read; shared memory, memory and tensors that are written."""
    formats = [FORMATS[name] for name in ("f16", "bf16", "f32", "s32")]

    def some(*shape: int) -> Array:
        return _parts(rng, shape, formats, np.uint8)

    tensors = [(t.written, some(t.bytes)) for t in program.tensors]
    read, written = ([x for is_written, x in tensors if is_written == way] for way in (False, True))
    image, memory = some(blocks, IMAGE), some(blocks, program.rounds, MEMORY)
    return [some(blocks, program.rounds, SOURCE), *read], [image, memory, *written]


def pipeline_trials(count: int, target: Target, first: int = 0) -> Iterator[Trial]:
    """Random programs of producers and consumers."""
    for seed in range(first, first + count):
        program = random_pipeline_program(seed)
        body, outputs = _renamed(program.text), int(np.prod(program.shown)) // program.blocks
        maps = tuple(_map(n, t) for n, t in enumerate((program.a, program.b)) if isinstance(t, Tensor))
        expect = _by_executor(body, program.threads, program.shared, target, maps)
        yield Trial(
            f"random pipeline {seed}", body, program.threads, outputs, partial(draw_pipeline, program), expect,
            program.shared, program.blocks, maps,
        )  # fmt: skip


def draw_pipeline(program: Pipeline, rng: np.random.Generator, blocks: int) -> tuple[list[Array], list[Array]]:
    """A and B as bytes, and the results before."""
    a, b, d = (x.format for x in held(program.form))
    sizes = program.sources
    read = [_parts(rng, (size,), [fmt], np.uint8) for size, fmt in zip(sizes, (a, b), strict=True)]
    return read, [_parts(rng, program.shown, [d], np.uint32)]


def _parts(rng: np.random.Generator, shape: tuple[int, ...], formats: list[Format], dtype: type) -> Array:
    """An array in four parts, the elements of each of one format and one distribution."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    edges = [16 * (size * n // 64) for n in range(4)] + [size]
    found = np.empty(size, np.uint8)
    for at, end in pairwise(edges):
        fmt, kind = formats[rng.integers(len(formats))], draws.mixture(rng)[rng.integers(3)]
        found[at:end] = (
            draws.elements(rng, ((end - at) * 8 // fmt.bits,), fmt, kind).view(np.uint8) if fmt.bits >= 8
            else draws.words(rng, (end - at,), np.uint8)
        )  # fmt: skip
    return found.view(dtype).reshape(shape)


def emulated(trial: Trial, target: Target) -> Trial:
    """The same kernel and inputs, with nbtc's executor in the place of nbtc's functions."""
    expect = _by_executor(trial.body, trial.threads, trial.shared, target, trial.maps)
    return trial._replace(form=f"{trial.form}, in a program", expect=expect)


def _by_executor(
    body: str, threads: Threads, shared: int, target: Target, maps: Sequence[Map] = ()
) -> Callable[[list[Array], list[Array]], list[Array]]:
    def expect(inputs: list[Array], before: list[Array]) -> list[Array]:
        found = [x.copy() for x in before]
        machine.run(body, len(before[0]), threads, shared, inputs, found, maps)
        return found

    machine = Emulated(str(target))
    return expect
