"""Where two GPUs part inside of a compiled model: every kernel and library call, forward and backward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_leaves

from nbtc.testing import raw_bits
from nbtc.torch.tensors import array


class KernelDifference(NamedTuple):
    """One launch or library call on a GPU against the same one on the first GPU.

    name: of the kernel, or the operation of a library call.  source: file and line of the model, of kernels.
    elements: of all its tensors afterwards.  differ: how many differ in bits.  `name` is "other kernels" where the GPUs
    do not run the same from there on; nothing after it is compared.
    """

    name: str
    source: str
    backward: bool
    arch: str
    elements: int
    differ: int


class _Step(NamedTuple):
    name: str
    source: str
    backward: bool
    outputs: list[Any]


def kernel_rows(
    model: torch.nn.Module,
    call: Callable[[Any], Any],
    archs: Sequence[object],
    names: Sequence[str],
    threads: int | None,
) -> tuple[KernelDifference, ...]:
    """Rows of every GPU but the first.  call: runs a model on the inputs."""
    runs = [_steps(model, call, arch, threads) for arch in archs]
    rows: list[KernelDifference] = []
    for name, run in zip(names[1:], runs[1:], strict=True):
        for base, step in zip(runs[0], run, strict=False):
            shapes = [[x.shape for x in s.outputs] for s in (base, step)]
            if base.name != step.name or shapes[0] != shapes[1]:
                rows.append(KernelDifference("other kernels", step.source, step.backward, name, 0, 0))
                break
            differ = sum(int((a != b).sum()) for a, b in zip(base.outputs, step.outputs, strict=True))
            elements = sum(x.size for x in step.outputs)
            rows.append(KernelDifference(step.name, step.source, step.backward, name, elements, differ))
    return tuple(rows)


def _steps(model: torch.nn.Module, call: Callable[[Any], Any], arch: object, threads: int | None) -> list[_Step]:
    """Every launch and library call of one forward and backward pass, whose gradient is one for every output."""
    from nbtc.torch.inductor.backend import compile

    fast = compile(model, arch=arch, threads=threads)
    steps: list[_Step] = []
    backward = False

    def note(name: str, outputs: list[torch.Tensor]) -> None:
        kernel = fast.kernels.get(name)
        bits = [raw_bits(x.numpy() if x.dtype == torch.int64 else array(x)).copy() for x in outputs]
        steps.append(_Step(name, kernel.origin if kernel is not None else "", backward, bits))

    fast.session.watchers.append(note)
    result = call(fast)
    found = [x for x in tree_leaves(result) if isinstance(x, torch.Tensor) and x.requires_grad]
    wanted = [p for p in model.parameters() if p.requires_grad]
    if found and wanted:
        backward = True
        torch.autograd.grad(found, wanted, [torch.ones_like(x) for x in found], allow_unused=True)
    return steps
