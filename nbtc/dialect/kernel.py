"""`nbtc.kernel` and `nbtc.device`: decorators, and launches on the CPU."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cached_property, partial, update_wrapper
from threading import Lock
from typing import Any, NamedTuple

from nbtc import driver
from nbtc.dialect import arguments, module, text_cache
from nbtc.dialect.compile_errors import said_plainly
from nbtc.dialect.module import Bounds
from nbtc.dialect.parameters import ParameterPacker
from nbtc.dialect.pickles import reduced
from nbtc.dialect.words import DeviceFunction
from nbtc.errors import CompilerError, KernelError, OptionError, shown
from nbtc.executor.launch.arguments import Arguments
from nbtc.executor.launch.configured import Configured
from nbtc.executor.launch.launch import GridShape, geometry, obeyed
from nbtc.executor.program import Program, load
from nbtc.isa.archs import arch as find_arch

UNBOUNDED = Bounds()
MOST_THREADS = 1024  # of a block (CUDA C++ Programming Guide, "Compute Capabilities")
MOST_CONFIGURATIONS = 64  # that a kernel remembers


class Specialized(NamedTuple):
    """A kernel for arguments of certain types."""

    text: str
    program: Program
    pack: ParameterPacker


class Kernel:
    """What `nbtc.kernel` returns: a kernel, compiled for the types of its arguments when it is launched.

    `k[grid, block](*args)` runs all threads of the grid on the CPU and returns when they have ended.  `k[grid, block,
    stream, shared_bytes](*args)`, in Numba's order, sets the size of dynamic shared memory; the CPU ignores the stream.
    If arrays are in a GPU's memory, the same PTX runs there.  Arguments are numbers, arrays (NumPy's, torch's, anything
    with `__array_interface__`, `__cuda_array_interface__` or DLPack; written in place, any strides), and tuples of
    these.
    """

    arch: str
    function: Callable[..., Any]

    def __init__(self, function: Callable[..., Any], arch: str, mode: str = "", bounds: Bounds = UNBOUNDED) -> None:
        update_wrapper(self, _checked(function, "kernel"))
        self.function, self.arch, self._mode, self._bounds = function, arch, mode, bounds
        self._names = tuple(inspect.signature(function).parameters)
        self._made: dict[Any, Specialized] = {}
        self._configured: dict[Any, Configured] = {}
        self._others: dict[str, Kernel] = {}
        self._lock = Lock()

    def __call__(self, *_: Any, **__: Any) -> None:
        raise CompilerError(
            f"{self.function.__name__} is a kernel: launch it, {self.function.__name__}[grid, block](...)"
        )

    def on(self, arch: str | int) -> Kernel:
        """The same kernel, compiled for another architecture and with its arithmetic."""
        name = find_arch(arch).name
        if name == self.arch:
            return self
        return self._others.setdefault(name, Kernel(self.function, name, self._mode, self._bounds))

    @cached_property
    def checked(self) -> Kernel:
        """The same kernel with every access, barrier and hazard watched, as `nbtc.Program.checked`."""
        return self._in_mode("checked")

    @cached_property
    def profile(self) -> Kernel:
        """The same kernel, whose launches return a profile, as `nbtc.Program.profile`."""
        return self._in_mode("profile")

    def _in_mode(self, mode: str) -> Kernel:
        found = Kernel(self.function, self.arch, mode, self._bounds)
        found._made = self._made
        return found

    def ptx(self, *args: Any) -> str:
        """The PTX text that a launch with arguments of these types runs; arrays are not touched."""
        return self._specialized([arguments.given(x) for x in args]).text

    def __getitem__(self, configuration: Any) -> Configured:
        """Bind a launch configuration."""
        try:
            return self._configured[configuration]
        except (KeyError, TypeError):  # TypeError: lists have no hash
            pass
        parts = configuration if isinstance(configuration, tuple) else (configuration,)
        if not 2 <= len(parts) <= 4:
            raise OptionError(f"{configuration!r}: pass [grid, block], then stream and shared_bytes if need be")
        extents = obeyed(self._bounds.directives, parts[0], parts[1], None)
        stream, shared = (*parts[2:], None)[0], int(parts[3]) if len(parts) == 4 else 0
        found = Configured(self.launch, extents, shared=shared, stream=stream)
        try:
            if len(self._configured) < MOST_CONFIGURATIONS:
                self._configured[configuration] = found
        except TypeError:
            pass
        return found

    def launch(self, grid: Any, block: Any, args: Any, *, shared: int = 0, stream: Any = None, **options: Any) -> Any:
        """Run a grid of blocks; options and result are those of `nbtc.Program.launch` (cluster, cooperative, memory,
        threads, progress, timeout).  On a GPU only memory and threads are taken, and change nothing."""
        values = [arguments.given(x) for x in args]
        made = self._specialized(values)
        if arguments.on_device([v.value for v in values]):
            self._refuse_on_device(options)
            return self._on_device(made, (grid, block), [v.value for v in values], shared, stream)
        places, memory = arguments.placed([v.value for v in values], self._names)
        program = getattr(made.program, self._mode) if self._mode else made.program
        return program.launch(grid, block, Arguments(made.pack(places), memory), shared=shared, **options)

    def _refuse_on_device(self, options: dict[str, Any]) -> None:
        """Raise for what would be dropped: a launch that a GPU runs otherwise than it was asked for is a wrong one."""
        for name, value in options.items():
            if name not in ("memory", "threads") and value not in (None, False):
                hint = "declare it, @nbtc.kernel(cluster=...)" if name == "cluster" else "pass arrays in host memory"
                raise OptionError(
                    f"{self.__name__}.launch({name}={shown(value)}): launches on a GPU take grid, block, shared and "
                    f"stream; {hint}, or drop {name}="
                )

    def _on_device(self, made: Specialized, extents: Any, values: list[Any], shared: int, stream: Any) -> None:
        if self._mode:
            raise OptionError(f"{self.__name__}.{self._mode} runs on the CPU: pass arrays in host memory")
        grid, block = extents
        g = grid if isinstance(grid, GridShape) else obeyed(self._bounds.directives, grid, block, None)
        fields = made.pack.fields(values)
        driver.launch(made.text, made.program.name, g.grid, g.block, shared, stream, fields)

    def _specialized(self, values: list[arguments.Given]) -> Specialized:
        key = tuple([v.key for v in values])
        found = self._made.get(key)
        if found is None:
            if len(values) != len(self._names):
                wanted = ", ".join(self._names)
                raise KernelError(f"{self.__name__} takes {len(self._names)} arguments ({wanted}), not {len(values)}")
            with self._lock:
                found = self._made.get(key)
                if found is None:
                    found = self._made[key] = self._specialize(values)
        return found

    def _specialize(self, values: list[arguments.Given]) -> Specialized:
        kinds = [arguments.kind_of(n, v.key, v.value) for n, v in zip(self._names, values, strict=True)]
        name = text_cache.digest(self.function, kinds, self.arch, repr(self._bounds))
        written = text_cache.fetch(name)
        if written is None:
            with said_plainly(self.function):
                written = module.write(self.function, kinds, self.arch, self._bounds)
            text_cache.keep(name, written)
        return Specialized(written.text, load(written.text, self.arch)[written.name], ParameterPacker(kinds))

    def __reduce__(self) -> str | tuple[Any, ...]:
        return reduced(self, self.arch, self._mode, self._bounds)

    @cached_property
    def __name__(self) -> str:
        return self.function.__name__

    def __repr__(self) -> str:
        return f"<kernel {self.__name__}({', '.join(self._names)}) on {self.arch}>"


class Device(DeviceFunction):
    """A function that kernels call."""

    def __init__(self, function: Callable[..., Any]) -> None:
        update_wrapper(self, _checked(function, "device"))
        super().__init__(function)

    def __call__(self, *_: Any, **__: Any) -> None:
        name = self.function.__name__
        raise CompilerError(f"{name} is a device function: call it from a function under @nbtc.kernel or @nbtc.device")

    def __reduce__(self) -> str | tuple[Any, ...]:
        return reduced(self)

    def __repr__(self) -> str:
        return f"<device function {self.function.__name__}>"


def _checked(function: Callable[..., Any], decorator: str) -> Callable[..., Any]:
    if not inspect.isfunction(function):
        raise KernelError(f"@nbtc.{decorator} takes a Python function, not {shown(function)}: put it above a def")
    return function


def _bounds(threads: int | None, cluster: Any) -> Bounds:
    if threads is not None and (not isinstance(threads, int) or not 1 <= threads <= MOST_THREADS):
        raise OptionError(f"max_threads={threads!r}: pass how many threads a block has at most, 1 to {MOST_THREADS}")
    return Bounds(threads or 0, () if cluster is None else geometry(cluster, 1, None).grid)


def kernel(
    function: Callable[..., Any] | None = None,
    *,
    arch: str | int = "sm_90",
    max_threads: int | None = None,
    cluster: int | Sequence[int] | None = None,
) -> Any:
    """Make a kernel of a function that is written for one thread, as in CUDA C++, and launched for many.

    arch: the architecture whose instructions and arithmetic it has, "sm_70" to "sm_121".  max_threads: the most threads
    of a block that launches will have, so that a thread may have more registers (`__launch_bounds__`).  cluster: how
    many blocks form a cluster in every launch, an int or up to 3 (`__cluster_dims__`).

    The function knows its place in the grid from `nbtc.grid(1)`, `nbtc.thread_idx.x` and so on; "The kernel language"
    in the documentation says what else it may do.  It returns nothing: results go into arrays.  Raises KernelError,
    with the line, for code that can't be compiled, and ProgramError for what goes wrong while it runs.

    >>> import numpy as np, nbtc
    >>> @nbtc.kernel
    ... def scale(x, factor):
    ...     i = nbtc.grid(1)
    ...     if i < x.size:
    ...         x[i] *= factor
    >>> x = np.arange(5, dtype=np.float32)
    >>> scale[1, 32](x, 2)
    >>> x.tolist()
    [0.0, 2.0, 4.0, 6.0, 8.0]
    """
    name = find_arch(arch).name
    bounds = _bounds(max_threads, cluster)
    made = partial(Kernel, arch=name, bounds=bounds)
    return made(function) if function is not None else made


def device(function: Callable[..., Any]) -> Device:
    """Make a Python function one that kernels and other device functions can call; it is compiled into them.

    >>> import numpy as np, nbtc
    >>> @nbtc.device
    ... def square(x):
    ...     return x * x
    >>> @nbtc.kernel
    ... def squares(out):
    ...     out[nbtc.thread_idx.x] = square(nbtc.thread_idx.x)
    >>> out = np.zeros(4, np.int32)
    >>> squares[1, 4](out)
    >>> out.tolist()
    [0, 1, 4, 9]
    """
    return Device(function)
