"""Numba's pipeline of passes with a lowering of nbtc's in place of Numba's own."""

from __future__ import annotations

from typing import Any

from numba.core import compiler
from numba.core.typed_passes import NativeLowering


def with_lowering(replacement: type) -> type:
    """A pipeline class whose pass that lowers to LLVM is `replacement`."""

    class Pipeline(compiler.CompilerBase):  # type: ignore[misc]
        def define_pipelines(self) -> list[Any]:
            passes = compiler.DefaultPassBuilder.define_nopython_pipeline(self.state)
            passes.passes[:] = [(replacement if p is NativeLowering else p, text) for p, text in passes.passes]
            passes.finalize()
            return [passes]

    return Pipeline
