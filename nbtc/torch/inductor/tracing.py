"""What Dynamo's traces of a model meet otherwise on a GPU, while a compiled model is called."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch


def _traced() -> Iterator[tuple[Any, str, Callable[..., Any]]]:
    """(owner, name, what makes its replacement) of the functions of PyTorch that ask for a device in a trace."""
    from torch.optim import optimizer
    from torch.utils import _foreach_utils

    for owner in (optimizer, _foreach_utils):
        yield owner, "_get_foreach_kernels_supported_devices", _with_cpu
    flex = sys.modules.get("torch.nn.attention.flex_attention")
    if flex is not None:
        yield flex, "_validate_device", _not_traced
        yield flex, "_apply_kernel_options", _with_gradients


def _with_cpu(original: Callable[[], list[str]]) -> Callable[[], list[str]]:
    def devices() -> list[str]:
        return [*original(), "cpu"] if torch.compiler.is_compiling() else original()

    return devices


def _not_traced(original: Callable[..., None]) -> Callable[..., None]:
    def check(*args: Any) -> None:
        if not torch.compiler.is_compiling():
            original(*args)

    return check


def _with_gradients(original: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """flex_attention's further outputs as on a GPU: the logarithms of sums wherever there may be gradients."""

    def options(
        query: Any, key: Any, value: Any, return_lse: bool, kernel_options: Any, return_aux: Any = None
    ) -> dict[str, Any]:
        if not torch.compiler.is_compiling():
            return original(query, key, value, return_lse, kernel_options, return_aux)
        lse, most = (return_lse, False) if return_aux is None else return_aux
        made = original(query, key, value, lse, kernel_options)
        made["OUTPUT_LOGSUMEXP"] = lse or torch.is_grad_enabled()
        made["OUTPUT_MAX"] = most
        return made

    return options


class _Tracing:
    """A context for calls of compiled models: the first thread to enter exchanges functions, the last restores them.

    Outside of a trace the exchanged functions do what the originals do.
    """

    def __init__(self) -> None:
        self._lock, self._calls = threading.Lock(), 0
        self._originals: list[tuple[Any, str, Any]] = []

    def __enter__(self) -> None:
        with self._lock:
            self._calls += 1
            if self._calls == 1:
                for owner, name, made in _traced():
                    original = getattr(owner, name)
                    self._originals.append((owner, name, original))
                    setattr(owner, name, made(original))

    def __exit__(self, *failure: Any) -> None:
        with self._lock:
            self._calls -= 1
            while not self._calls and self._originals:
                setattr(*self._originals.pop())


tracing = _Tracing()
