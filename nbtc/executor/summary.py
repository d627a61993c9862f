"""A kernel in a few lines: its registers, memory, forms, and where its lanes may diverge."""

from __future__ import annotations

from collections import Counter

from nbtc.executor.coverage import forms_of
from nbtc.executor.kernel.flow import graph
from nbtc.executor.kernel.link import Linked
from nbtc.executor.kernel.uniform import FunctionSetting, facts
from nbtc.executor.rows.uses import use_of
from nbtc.executor.text.names import full_name, signature


def summary(linked: Linked, arch: str) -> str:
    """The text that printing a kernel gives."""
    registers: dict[str, str] = {}
    varying, blocks, divergent = 0, 0, 0
    for function in linked.functions:
        g = graph(function, lambda _: False)
        f = facts(function, g, FunctionSetting(recursive=function.name in linked.recursive))
        blocks, divergent = blocks + g.end, divergent + len(f.divergent)
        used = [use_of(i) for i in function.body or ()]
        mine = {r.name: r.type for u in used for r in (*u.reads, *u.writes)}
        varying += len(f.varies & mine.keys())
        registers |= {f"{function.name} {name}": kind for name, kind in mine.items()}
    kinds = Counter(registers.values())
    forms = forms_of(linked)
    missing = sum(bool(f.refused) for f in forms)
    functions = ", ".join(full_name(f.name) for f in linked.functions[:-1])
    rows = [
        f"kernel {signature(linked.kernel.name)} on {arch}",
        f"  parameters  {', '.join(f'.{v.type} {v.name}' for v in linked.kernel.prototype.arguments) or 'none'}",
        f"  registers   {len(registers)} ({', '.join(f'{n} {kind}' for kind, n in kinds.most_common())}), "
        f"{varying} of them differ between lanes",
        f"  memory      {linked.shared_bytes} bytes shared, {linked.local_bytes} bytes local",
        f"  forms       {len(forms)}" + (f", {missing} of them can't run: see nbtc.coverage" if missing else ""),
        f"  flow        {blocks} blocks, lanes may diverge in {divergent}",
    ]
    return "\n".join(rows + ([f"  calls       {functions}"] if functions else []))
