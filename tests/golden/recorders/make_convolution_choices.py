"""Asks cuDNN's heuristic about random convolutions, and fits nbtc/data/convolution_choices.txt.xz to its answers.

    python tests/golden/recorders/make_convolution_choices.py ask ANSWERS.npz [SECONDS] [SEED]     (needs a GPU's cuDNN)
    python tests/golden/recorders/make_convolution_choices.py fit ANSWERS.npz ... OUT.txt.xz       (needs scikit-learn)

The file here was made of the answers to 16 processes in 130 seconds each (PyTorch 2.11, cuDNN 9.19, an H100), whose
sizes were more often odd ones.  Of 5,790 answers to other draws its trees have 94.8 %.
"""

import ctypes
import json
import lzma
import math
import random
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from nbtc.torch.cudnn_choices import OPERATIONS, features

FIELDS = ("items", "channels", "outputs", "size", "kernel", "stride", "padding", "dilation", "groups", "rank")
COLUMNS = (*FIELDS, "operation", "half", "last", "answer")
# Fitted to half of the answers, 8,000 leaves had 92.2 to 93.4 % of those left out, 2,000 three percent less, and
# 20,000 no more
LEAVES = 12000
Answer = tuple[int, tuple[tuple[int, int], ...]]  # an engine's number, and its knobs with their values

# Of cudnn_backend.h: kinds of descriptors, attributes' types, and the attributes set here
TENSOR, CONVOLUTION, GRAPH, HEURISTIC, CONFIG, ENGINE, KNOB = 17, 1, 15, 4, 3, 2, 7
HANDLE, DATA, INT64, FLOAT, MODE, HEURISTIC_MODE, KNOB_KIND, DESCRIPTOR = 0, 1, 3, 4, 7, 8, 9, 15
OPERATION = {"forward": (10, 700), "input": (12, 706), "weight": (11, 712)}  # kind, first attribute
FORMATS = {0: 9, 1: 2}  # bf16, f16


class Cudnn:
    """The library's backend interface."""

    def __init__(self) -> None:
        import torch

        torch.zeros(1, device="cuda")
        self.library = ctypes.CDLL("libcudnn.so.9")  # torch has loaded it
        for name in ("SetAttribute", "GetAttribute"):
            more = [ctypes.c_void_p] * (1 + name.startswith("Get"))
            types = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_int64, *more]
            getattr(self.library, "cudnnBackend" + name).argtypes = types
        self.handle = ctypes.c_void_p()
        self.check(self.library.cudnnCreate(ctypes.byref(self.handle)))
        self.made: list[ctypes.c_void_p] = []

    @staticmethod
    def check(status: int) -> None:
        if status:
            raise RuntimeError(f"cuDNN's status {status}")

    def new(self, kind: int, *attributes: tuple[int, int, Any]) -> ctypes.c_void_p:
        """A descriptor with (attribute, type, value or values); without any it is left open."""
        made = ctypes.c_void_p()
        self.check(self.library.cudnnBackendCreateDescriptor(kind, ctypes.byref(made)))
        self.made.append(made)
        for name, of, value in attributes:
            values = value if isinstance(value, list) else [value]
            if of in (HANDLE, DESCRIPTOR):
                buffer: Any = (ctypes.c_void_p * len(values))(*[x.value for x in values])
            else:
                element = {INT64: ctypes.c_int64, FLOAT: ctypes.c_float}.get(of, ctypes.c_int)
                buffer = (element * len(values))(*values)
            self.check(self.library.cudnnBackendSetAttribute(made, name, of, len(values), buffer))
        if attributes:
            self.check(self.library.cudnnBackendFinalize(made))
        return made

    def get(self, what: ctypes.c_void_p, name: int, of: int, into: Any, most: int = 1) -> int:
        """How many values there are."""
        count = ctypes.c_int64()
        self.check(self.library.cudnnBackendGetAttribute(what, name, of, most, ctypes.byref(count), into))
        return count.value

    def ask(self, operation: str, half: int, last: int, c: SimpleNamespace) -> Answer:
        """The first engine of the heuristic's instant mode, which PyTorch takes; engine -1 where there is none."""
        try:
            return self._ask(operation, half, last, c)
        except RuntimeError:
            return -1, ()
        finally:
            for x in self.made:
                self.library.cudnnBackendDestroyDescriptor(x)
            self.made.clear()

    def _ask(self, operation: str, half: int, last: int, c: SimpleNamespace) -> Answer:
        axes = [(c.size, c.kernel, c.stride, c.padding, c.dilation)] * c.rank
        axes = [(1, 1, 1, 0, 1), *axes] if c.rank == 1 else axes  # PyTorch passes lines as images
        sizes, filters, strides, padding, dilation = (list(x) for x in zip(*axes, strict=True))
        made = [(n + 2 * p - d * (k - 1) - 1) // t + 1 for n, k, t, p, d in axes]
        shapes = {119: [c.outputs, c.channels // c.groups, *filters], 120: [c.items, c.channels, *sizes]}
        tensors = [self.tensor(half, last, i, x) for i, x in {**shapes, 121: [c.items, c.outputs, *made]}.items()]
        how = self.new(
            CONVOLUTION, (100, DATA, 0), (101, MODE, 1), (106, INT64, len(axes)), (102, INT64, dilation),
            (103, INT64, strides), (104, INT64, padding), (105, INT64, padding),
        )  # fmt: skip
        kind, first = OPERATION[operation]
        scales = (first, FLOAT, 1.0), (first + 1, FLOAT, 0.0), (first + 2, DESCRIPTOR, how)
        node = self.new(kind, *scales, *((first + 3 + i, DESCRIPTOR, x) for i, x in enumerate(tensors)))
        graph = self.new(GRAPH, (800, HANDLE, self.handle), (801, DESCRIPTOR, node))
        heuristic = self.new(HEURISTIC, (201, DESCRIPTOR, graph), (200, HEURISTIC_MODE, 0))
        config = self.new(CONFIG)
        if not self.get(heuristic, 202, DESCRIPTOR, (ctypes.c_void_p * 1)(config.value)):
            return -1, ()
        engine, number = self.new(ENGINE), ctypes.c_int64()
        self.get(config, 300, DESCRIPTOR, (ctypes.c_void_p * 1)(engine.value))
        self.get(engine, 1301, INT64, ctypes.byref(number))
        knobs = [self.new(KNOB) for _ in range(14)]
        count = self.get(config, 302, DESCRIPTOR, (ctypes.c_void_p * 14)(*[x.value for x in knobs]), 14)
        return number.value, tuple(sorted(map(self.knob, knobs[:count])))

    def knob(self, which: ctypes.c_void_p) -> tuple[int, int]:
        kind, value = ctypes.c_int(), ctypes.c_int64()
        self.get(which, 600, KNOB_KIND, ctypes.byref(kind))
        self.get(which, 601, INT64, ctypes.byref(value))
        return kind.value, value.value

    def tensor(self, half: int, last: int, number: int, shape: list[int]) -> ctypes.c_void_p:
        order = [0, *range(2, len(shape)), 1] if last else list(range(len(shape)))
        strides, step = [0] * len(shape), 1
        for axis in reversed(order):
            strides[axis], step = step, step * shape[axis]
        return self.new(
            TENSOR, (901, DATA, FORMATS[half]), (902, INT64, shape), (903, INT64, strides), (906, INT64, number),
            (900, INT64, 64),
        )  # fmt: skip


def drawn(rng: random.Random) -> SimpleNamespace | None:
    """A random convolution; None of one that doesn't exist, or is too large or small."""

    def channels() -> int:
        u = rng.random()
        if u < 0.45:
            return rng.choice((1, 2, 3, 4, 8, 16, 32, 64, 64, 128, 128, 256, 256, 512, 1024))
        return 8 * rng.randint(1, 48 if rng.random() < 0.7 else 128) if u < 0.8 else rng.randint(1, 400)

    inputs, outputs = channels(), channels()
    outputs = inputs if rng.random() < 0.25 else outputs
    kernel = rng.choice((1, 1, 1, 3, 3, 3, 3, 3, 5, 7, 2, 4, 6, 9)) if rng.random() < 0.97 else rng.randint(1, 15)
    rank = 2 if rng.random() < 0.9 else rng.choice((1, 1, 3))
    groups = rng.choice((2, 4, 8, 16, 32)) if rng.random() < 0.05 else 1
    dilation = 1 if kernel == 1 or rng.random() < 0.93 else rng.randint(2, 4)
    stride = rng.choice((1, 1, 1, 2, 2, kernel)) if rng.random() < 0.97 else rng.randint(1, 4)
    padding = dilation * (kernel // 2) if rng.random() < 0.7 else rng.choice((0, 0, 1, dilation * (kernel - 1)))
    size = rng.choice((*range(1, 11), 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 96, 112, 128))
    items = rng.choice((1, 1, 2, 2, 4, 4, 8, 8, 16, 16, 32, 64)) if rng.random() < 0.75 else rng.randint(1, 40)
    made = (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
    work = items * inputs * outputs // groups * kernel**rank * max(made, 0) ** rank
    if inputs % groups or outputs % groups or not 100 <= work <= 3e10:
        return None
    values = items, inputs, outputs, size, kernel, stride, padding, dilation, groups, rank
    return SimpleNamespace(**dict(zip(FIELDS, values, strict=True)))


def ask(path: str, seconds: float, seed: int) -> None:
    rng, library, rows, answers = random.Random(seed), Cudnn(), [], {}
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        c = drawn(rng)
        for half in (0, 1) if c else ():
            last = int(c.rank > 1 and rng.random() < 0.4)
            for i, operation in enumerate(OPERATIONS):
                code = answers.setdefault(library.ask(operation, half, last, c), len(answers))
                rows.append((*vars(c).values(), i, half, last, code))
    np.savez_compressed(path, rows=np.array(rows, np.uint16), answers=json.dumps(list(answers)))


TILES = {0: "t32", 1: "t64", 2: "t16"}  # by knob 13; of CUTLASS' kernels knob 5 says it
CUTLASS = {3: "t32", 4: "t64"}
SINGLE = {  # engines of one kind
    "forward": {0: "crs", 1: "crs", 58: "gemm", 6: "winograd"},
    "input": {0: "crs", 25: "crs", 3: "crs", 2: "taps", 1: "taps", 63: "gemm", 7: "winograd"},
    "weight": {
        0: "lanes", 9: "tc", 45: "tc", 47: "tc", 40: "tc", 65: "tc", 39: "sliced", 16: "pairs16", 62: "gemm",
        49: "splitk", 33: "splitk", 10: "splitk", 17: "winograd",
    },
}  # fmt: skip


def kind(operation: str, last: bool, answer: Any) -> str:
    """Which of `cudnn.CHOSEN` an engine with its knobs is, as the profiler's names and the results' bits showed.

    Engine 1 for gradients of inputs, which is seldom chosen, is a chain, but goes with engine 2.
    """
    engine, knobs = answer[0], dict(map(tuple, answer[1]))
    if engine in SINGLE[operation]:
        return SINGLE[operation][engine]
    if operation == "forward":
        if engine == 47:
            return "flat" if knobs.get(6) == 3 else "plain"
        if engine == 28:
            return "rsc" if last else "crs"
        return (CUTLASS if engine in (45, 27, 57, 51, 35) else {}).get(knobs.get(5)) or (
            TILES if engine in (22, 23, 62, 67) else {}
        ).get(knobs.get(13), "other")
    if operation == "input":
        if engine in (67, 73):
            return TILES.get(knobs.get(13), "other").replace("t32", "t32w").replace("t64", "t64w")
        return (CUTLASS if engine in (57, 64, 59) else {}).get(knobs.get(5)) or (
            TILES if engine in (22, 43, 40, 46) else {}
        ).get(knobs.get(13), "other")
    if engine == 37:
        return "tc" if knobs.get(2) == 11 else "sliced"
    return {0: "pairs", 1: "lines"}.get(knobs.get(2), "pairs16") if engine == 19 else "other"


def preorder(fitted: Any) -> list[str]:
    """Lines of a tree's nodes; branches whose leaves are all of one kind are that leaf."""
    tree, names = fitted.tree_, fitted.classes_
    one = [""] * tree.node_count
    for i in reversed(range(tree.node_count)):
        low, high = tree.children_left[i], tree.children_right[i]
        if low < 0:
            one[i] = str(names[tree.value[i, 0].argmax()])
        elif one[low] == one[high]:
            one[i] = one[low]
    lines, waiting = [], [0]
    while waiting:
        i = waiting.pop()
        lines.append(one[i] or f"{tree.feature[i]} {math.floor(tree.threshold[i])}")
        if not one[i]:
            waiting += [tree.children_right[i], tree.children_left[i]]
    return lines


def fit(paths: list[str], out: str) -> None:
    from sklearn.tree import DecisionTreeClassifier

    trees = []
    for i, operation in enumerate(OPERATIONS):
        inputs, labels = [], []
        for path in paths:
            with np.load(path) as file:
                rows, answers = file["rows"].astype(np.int64).T, json.loads(str(file["answers"]))
            c = SimpleNamespace(**dict(zip(COLUMNS, rows, strict=True)))
            own = (c.operation == i) & (c.groups != c.channels)
            c = SimpleNamespace(**{name: x[own] for name, x in vars(c).items()})
            kinds = np.array([[kind(operation, bool(last), x) for last in (0, 1)] for x in answers])
            inputs.append(np.stack(features(c), 1).astype(np.float32))
            labels.append(kinds[c.answer, c.last])
        x, y = np.concatenate(inputs), np.concatenate(labels)
        held = np.arange(len(x)) // 6 % 20 == 0
        fitted = DecisionTreeClassifier(max_leaf_nodes=LEAVES, min_samples_leaf=3, random_state=0)
        fitted.fit(x[~held], y[~held])
        print(operation, len(x), "left out:", fitted.score(x[held], y[held]))
        trees.append("\n".join(preorder(fitted)))
    Path(out).write_bytes(lzma.compress("\n\n".join(trees).encode() + b"\n", preset=9 | lzma.PRESET_EXTREME))


if __name__ == "__main__":
    if sys.argv[1] == "ask":
        ask(sys.argv[2], float([*sys.argv, "200"][3]), int([*sys.argv, "0", "0"][4]))
    else:
        fit(sys.argv[2:-1], sys.argv[-1])
