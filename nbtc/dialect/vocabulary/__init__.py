"""The modules that hold words: each registers its rows when it is imported."""

from __future__ import annotations

from importlib import import_module

MODULES = (
    "narrow_words", "thread_words", "memory_words", "atomic_words", "output_words", "warp_words", "wmma_words",
    "ptx_words", "wgmma_words", "math_words", "special_words", "copy_words",
    "tensor_copies", "group_words", "unroll_words",
)  # fmt: skip


def load() -> None:
    """Import them all."""
    for module in MODULES:
        import_module(f"{__name__}.{module}")
