"""What a compiled model runs outside of its compiled graphs: PyTorch's CPU kernels, which the report names.

Dynamo leaves a part of a model to PyTorch where a graph breaks, and all of it where it does not trace: recurrent
modules, fused steps of optimizers.  On a GPU such a part runs PyTorch's own CUDA kernels, which have no PTX here.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from nbtc.errors import UncompiledWarning, warn
from nbtc.torch.inductor import private
from nbtc.torch.inductor.refusals import TRACING, refusing
from nbtc.torch.inductor.running import EXACT
from nbtc.torch.inductor.session import Session, here
from nbtc.torch.inductor.tracing import tracing
from nbtc.torch.mode import emulated

_TORCH = f"{Path(torch.__file__).parent}{os.sep}"
_NBTC = f"{Path(__file__).parents[2]}{os.sep}"
_PRINTING = "_tensor_str.py"
# What Dynamo never traces, by the beginning of a file or function of PyTorch, and what to write instead.
WAYS = (
    (
        str(Path("nn", "modules", "rnn.py")),
        "Dynamo traces nn.RNN, nn.LSTM and nn.GRU only with torch._dynamo.config.allow_rnn = True, here and on the "
        "GPU; nn.LSTMCell and nn.GRUCell it always traces",
    ),
    ("_fused_", "PyTorch does not compile fused steps: give the optimizer fused=False, here and on the GPU"),
)
BROKEN = "Dynamo does not trace this part (TORCH_LOGS=graph_breaks says why; fullgraph=True refuses it)"


class Outside(TorchDispatchMode):
    """Notes every operation that no compiled graph runs, where its bits depend on who computes it."""

    supports_higher_order_operators = True

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Dynamo compiles under this mode."""
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if here.session is None and not _exact(func, (args, kwargs, result)):
            self._note(func.name().removeprefix("aten::").split(".")[0])
        return result

    def _note(self, op: str) -> None:
        place, inside = _place()
        if _PRINTING in inside:
            return
        way = next((way for what, way in WAYS if any(x.startswith(what) for x in inside)), BROKEN)
        recorder = self._session.recorder
        recorder.module, recorder.op, recorder.backward = place, op, False
        recorder.leave(f"outside of the compiled graphs, as its gradient: {way}")
        if (place, way) not in self._session.warned:
            self._session.warned.add((place, way))
            warn(
                f"{op} at {place} runs outside of the compiled graphs, with the CPU's bits and not those of "
                f"{self._session.gpu.name}: {way}",
                UncompiledWarning,
            )


def _exact(func: Any, tensors: Any) -> bool:
    """Whether an operation has the same bits everywhere: it moves them, or computes with integers, none random."""
    if not isinstance(func, torch._ops.OpOverload) or torch.Tag.nondeterministic_seeded in func.tags:
        return False
    if func.is_view or func._schema.name in EXACT:
        return True
    return not any(x.is_floating_point() or x.is_complex() for x in tree_leaves(tensors) if isinstance(x, torch.Tensor))


def _place() -> tuple[str, set[str]]:
    """(file:line of the innermost frame that is the model's, the files and functions of PyTorch that it is in)."""
    frame, inside = sys._getframe(2), set()
    while frame.f_back is not None:
        name = frame.f_code.co_filename
        if name.startswith(_TORCH):
            inside |= {name.removeprefix(_TORCH), frame.f_code.co_name}
        elif not name.startswith((_NBTC, "<")):
            break
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}", inside


def watched(call: Callable[..., Any], session: Session) -> Callable[..., Any]:
    """A compiled function, whose calls note what runs outside of its graphs."""

    @functools.wraps(call)
    def calling(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():  # a part of another compiled model
            return call(*args, **kwargs)
        if any(isinstance(mode, emulated) for mode in private.dispatch_modes()):  # which has it run uncompiled
            return call(*args, **kwargs)
        with refusing(TRACING), tracing, Outside(session):
            return call(*args, **kwargs)

    return calling
