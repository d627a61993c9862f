"""Which tensors were made for the CPU: moved to "cuda" they are copied, as onto a GPU.

A tensor's memory remembers it, so views, parameters and detached tensors know it too.  What operations compute has no
mark and counts as the GPU's.
"""

from __future__ import annotations

from typing import Any

import torch

MARK = "made_for_the_cpu"


def mark(made: Any) -> Any:
    """What a function made for the CPU."""
    if type(made) is torch.Tensor and made.layout is torch.strided:
        setattr(made.untyped_storage(), MARK, True)
    return made


def for_cpu(x: torch.Tensor) -> bool:
    """Whether a tensor's memory was made for the CPU; tensors of other classes do without the question."""
    plain = type(x) in (torch.Tensor, torch.nn.Parameter) and x.layout is torch.strided
    return plain and hasattr(x.untyped_storage(), MARK)


def from_numpy(array: Any) -> torch.Tensor:
    """`torch.from_numpy`, which no mode sees."""
    found: torch.Tensor = mark(FROM_NUMPY(array))
    return found


def load(file: Any, map_location: Any = None, *args: Any, **named: Any) -> Any:
    """`torch.load`: what was saved on a GPU or goes to one is the CPU's."""
    if isinstance(map_location, dict):
        map_location = {str(k): "cpu" if str(v).startswith("cuda") else v for k, v in map_location.items()}
    elif map_location is not None and not callable(map_location):
        map_location = "cpu" if str(map_location).startswith("cuda") else map_location
    elif map_location is None:
        map_location = _from_gpu
    return LOAD(file, map_location, *args, **named)


def _from_gpu(storage: Any, place: str) -> Any:
    return storage if place.startswith("cuda") else None


def make_wrapper(*args: Any, device: Any = None, **named: Any) -> Any:
    """`torch.Tensor._make_wrapper_subclass`, which no mode sees: classes of tensors around tensors are the CPU's."""
    return MAKE_WRAPPER(*args, device=device if str(device) == "meta" else "cpu", **named)


FROM_NUMPY, LOAD, MAKE_WRAPPER = torch.from_numpy, torch.load, torch.Tensor._make_wrapper_subclass
