"""What a mode did: products by module, and what it left to PyTorch."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from nbtc.gemm.orders import Order


class ProductRow(NamedTuple):
    """Products of one kind: where, what, how often.

    module: path of the innermost module, "" outside of any.  backward: computed for a gradient.  shape: (batch..., M,
    N, K).  seconds: wall-clock time in all.  evidence: of the order, where a library's is asked for.
    """

    module: str
    op: str
    backward: bool
    shape: tuple[int, ...]
    instruction: str
    order: str
    calls: int
    seconds: float
    evidence: str = ""


class LeftRow(NamedTuple):
    """A matrix operation that PyTorch computed itself, and why."""

    module: str
    op: str
    reason: str
    calls: int


class Report(NamedTuple):
    """What `emulated` computed (`products`) and what it did not (`left`); prints as a table, `.json()` as text."""

    arch: str
    products: tuple[ProductRow, ...]
    left: tuple[LeftRow, ...]

    def json(self) -> str:
        """The same as JSON text."""
        made: dict[str, Any] = {"arch": self.arch}
        made["products"] = [row._asdict() for row in self.products]
        made["left"] = [row._asdict() for row in self.left]
        return json.dumps(made, indent=1)

    def __str__(self) -> str:
        head = ("module", "op", "shape", "instruction", "order", "calls", "ms")
        rows = [
            (
                row.module or "-",
                f"{row.op}{' (backward)' if row.backward else ''}",
                "x".join(map(str, row.shape)),
                row.instruction,
                row.order,
                str(row.calls),
                f"{1000 * row.seconds:.2f}",
            )
            for row in self.products
        ]
        text = f"matrix products on {self.arch}\n{table([head, *rows])}"
        if self.left:
            left = [(row.module or "-", row.op, str(row.calls), row.reason) for row in self.left]
            text += f"\nleft to PyTorch\n{table([('module', 'op', 'calls', 'why'), *left])}"
        return text


def table(rows: Iterable[tuple[str, ...]]) -> str:
    """Rows of words as columns of one width."""
    rows = list(rows)
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(word.ljust(w) for word, w in zip(row, widths, strict=True)).rstrip() for row in rows)


class Recorder:
    """Collects rows while a mode runs; `module` and `op` say where it is."""

    def __init__(self) -> None:
        self._products: dict[tuple[Any, ...], list[float]] = {}
        self._left: dict[tuple[str, str, str], int] = {}
        self.module, self.op, self.backward = "", "", False

    def product(self, shape: tuple[int, ...], instruction: str, order: Order, seconds: float) -> None:
        """One more product."""
        key = (self.module, self.op, self.backward, shape, instruction, order.name, order.evidence)
        total = self._products.setdefault(key, [0, 0.0])
        total[0] += 1
        total[1] += seconds

    def leave(self, reason: str) -> None:
        """One more operation that PyTorch computes."""
        key = (self.module, self.op, reason)
        self._left[key] = self._left.get(key, 0) + 1

    def report(self, arch: str) -> Report:
        """Everything so far."""
        products = tuple(
            ProductRow._make((*key[:-1], int(total[0]), total[1], key[-1])) for key, total in self._products.items()
        )
        return Report(arch, products, tuple(LeftRow(*key, calls) for key, calls in self._left.items()))
