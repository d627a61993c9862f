"""What the back end can't select is refused before it could end the process."""

import llvmlite.binding as llvm
import pytest

from nbtc.dialect import selectable, target
from nbtc.errors import KernelError


def module(name):
    """One call of a function of a float."""
    target.machine("sm_80", "+ptx80")
    body = f"%y = call float @{name}(float %x)\nret float %y"
    return llvm.parse_assembly(f"declare float @{name}(float)\ndefine float @f(float %x) {{\n{body}\n}}")


@pytest.mark.parametrize("name", ["llvm.sqrt.f32", "llvm.floor.f32", "llvm.fabs.f32"])
def test_selectable(name):
    selectable.check(module(name))


@pytest.mark.parametrize("name", ["llvm.canonicalize.f32", "llvm.sinh.f32", "no_such_function", "NRT_MemInfo_alloc"])
def test_refused(name):
    said = "memory allocation" if name.startswith("NRT") else "has no device code"
    with pytest.raises(KernelError, match=said):
        selectable.check(module(name))
