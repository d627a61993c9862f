"""Compare recordings of whole models on a GPU with nbtc.

python scripts/replay_models.py MODELS.py RECORDING ... [--only NAME]

RECORDING is a file of torch.save, packed by xz or not: {"dtype": "bf16", "models": {name: recording}}, each recording
with "state", "inputs" and "outputs" (y, gradients, buffers), "kernels" (Triton source, PTX, configuration) and "rows":
every launch with its arguments before and the tensors that it changed, every library call with operands and result.
MODELS.py has make(name, dtype) -> (model, inputs) and step(model, inputs) -> outputs.

For each model one line says whether its outputs, gradients and buffers, its kernels and their PTX are the recorded
ones, whether every launch leaves the recorded bytes in the recorded memory, and whether every product has its bits; a
line more names each thing that differs.  The exit code is 1 if anything does.
"""

from __future__ import annotations

import argparse
import importlib.util
import lzma
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import nbtc
from nbtc.errors import NbtcWarning
from nbtc.torch.inductor.running import Running

DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
# What PTX says of the text that it was made from: paths, lines, debug sections.
ABOUT_SOURCE = ("//", ".loc", ".file", ".b8", ".b32", ".b64", ".section", ".global .align 1 .b8 assert")


def bits(x: torch.Tensor) -> torch.Tensor:
    """A tensor's bits as integers."""
    x = x.detach().contiguous()
    return x.view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()])


def differing(ours: torch.Tensor, theirs: torch.Tensor) -> str:
    """How many elements differ; empty when none does."""
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return f"{tuple(ours.shape)} {ours.dtype}, recorded {tuple(theirs.shape)} {theirs.dtype}"
    count = int((bits(ours) != bits(theirs)).sum())
    return f"{count} of {theirs.numel()}" if count else ""


def instructions(ptx: str) -> tuple[str, ...]:
    """PTX without what it says of its source."""
    stripped = (line.strip() for line in ptx.splitlines())
    return tuple(line for line in stripped if line and not line.startswith(ABOUT_SOURCE))


def plain(name: str) -> str:
    """A parameter's name in the model that was compiled."""
    return name.replace("_orig_mod.", "")


def copied(x: torch.Tensor) -> torch.Tensor:
    """A tensor's copy, byte for byte: a clone of bools has 1 for every other byte, which padding may well have."""
    return x.view(torch.uint8).clone().view(x.dtype) if x.dtype == torch.bool else x.clone()


def arguments(row: dict[str, Any]) -> list[Any]:
    """A launch's arguments; tensors that were equal before and after a change are one, as a buffer updated in place."""
    args: list[Any] = []
    for i, x in enumerate(row["args"]):
        same = (
            args[j]
            for j in row["after"]
            if j < i and i in row["after"] and x.shape == row["args"][j].shape
            and not differing(x, row["args"][j]) and not differing(row["after"][i], row["after"][j])
        )  # fmt: skip
        args.append(next(same, copied(x)) if isinstance(x, torch.Tensor) else x)
    return args


class Replay:
    """One recorded model, compiled here and run once."""

    def __init__(self, maker: Any, name: str, dtype: torch.dtype, given: dict[str, Any]) -> None:
        torch._dynamo.reset()
        model, inputs = maker.make(name, dtype)
        model.load_state_dict(given["state"])
        wanted = [x.requires_grad for x in inputs]
        inputs = [x.clone().requires_grad_(y) for x, y in zip(given["inputs"], wanted, strict=True)]
        self.given = given
        self.fast = nbtc.torch.compile(model, arch="H200", fullgraph=True, dynamic=False)
        start = time.perf_counter()
        torch.manual_seed(0)
        self.outputs = {plain(k): v for k, v in maker.step(self.fast, inputs).items()}
        self.seconds = time.perf_counter() - start
        self.by_ptx = {instructions(kernel.ptx): kernel for kernel in self.fast.kernels.values()}

    def model(self) -> Iterator[tuple[str, str]]:
        """Outputs, gradients and buffers."""
        for name, value in self.given["outputs"].items():
            yield plain(name), differing(self.outputs[plain(name)], value)

    def kernels(self) -> Iterator[tuple[str, str]]:
        """PTX, and with it source and configuration."""
        for kernel in self.given["kernels"]:
            ours = self.by_ptx.get(instructions(kernel["ptx"]))
            here = {k.source for k in self.fast.kernels.values()}
            why = "other PTX of the same source" if kernel["source"] in here else "no kernel of this source"
            if ours is not None:
                why = "" if ours.config == kernel["config"] else f"{ours.config}, recorded {kernel['config']}"
            yield kernel["name"], why

    def launches(self) -> Iterator[tuple[str, str]]:
        """Every launch, from its recorded memory."""
        for row in self.given["rows"]:
            if row["kind"] != "kernel":
                continue
            ours = self.by_ptx.get(instructions(self.given["kernels"][row["kernel"]]["ptx"]))
            if ours is None:
                yield row["name"], "no kernel with this PTX"
                continue
            args = arguments(row)
            ours.launch(*args)
            expected = [row["after"].get(i, x) for i, x in enumerate(row["args"])]
            pairs = [(a, b) for a, b in zip(args, expected, strict=True) if isinstance(b, torch.Tensor)]
            yield row["name"], ", ".join(filter(None, (differing(a, b) for a, b in pairs)))

    def products(self) -> Iterator[tuple[str, str]]:
        """Every library call, from its recorded operands."""
        for row in self.given["rows"]:
            if row["kind"] == "extern":
                operation = getattr(torch, row["name"])
                with Running(self.fast.session):
                    made = operation(*row["args"], **row["options"])
                shapes = " x ".join(str(tuple(x.shape)) for x in row["args"] if isinstance(x, torch.Tensor))
                yield f"{row['name']} {shapes}", differing(made, row["out"])

    def say(self, name: str) -> bool:
        """Print what is equal and what is not; whether all is."""
        found = {part: list(getattr(self, part)()) for part in ("model", "kernels", "launches", "products")}
        wrong = {part: [row for row in rows if row[1]] for part, rows in found.items()}
        counts = ", ".join(f"{part} {len(found[part]) - len(wrong[part])} of {len(found[part])}" for part in found)
        print(f"{name}: {self.seconds:.1f} s; equal: {counts}", flush=True)
        for part, rows in wrong.items():
            for what, why in rows:
                print(f"    {part}: {what}: {why}", flush=True)
        return not any(wrong.values())


def load(path: str) -> Any:
    """The module in a file."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", metavar="MODELS.py")
    parser.add_argument("recordings", metavar="RECORDING", nargs="+")
    parser.add_argument("--only", action="append", help="the model of this name")
    given = parser.parse_args()
    warnings.simplefilter("ignore", NbtcWarning)
    maker, equal = load(given.models), True
    for path in given.recordings:
        with lzma.open(path) if path.endswith(".xz") else open(path, "rb") as file:
            recorded = torch.load(file, weights_only=False)
        for name, recording in recorded["models"].items():
            if not given.only or name in given.only:
                equal &= Replay(maker, name, DTYPES[recorded["dtype"]], recording).say(f"{name} {recorded['dtype']}")
    return not equal


if __name__ == "__main__":
    sys.exit(main())
