"""Rows that only order or hint: the executor keeps every order, so they have nothing to do.

(PTX ISA, "membar", "fence", "griddepcontrol", "setmaxnreg".)  Warps of a block take turns on one thread of the host,
and what blocks share goes through atomics of the host that order everything.
"""

from __future__ import annotations

from nbtc.executor.emit.action import Action
from nbtc.executor.emit.form import slots
from nbtc.executor.emit.lanes import Lanes

SCOPES = "cta|cluster|gpu|sys"
RESTRICTED = "sync_restrict::shared::cluster|sync_restrict::shared::cta"
RESTRICTED_READS = "sync_restrict::shared::cluster::read"


def _fence(lanes: Lanes) -> None:
    """Everything before it in this thread is visible to all before everything after it."""
    lanes.b.fence("seq_cst")


def _nothing(lanes: Lanes) -> None:
    """Nothing to wait for, nothing to change."""


ACTIONS = (
    Action("membar", slots("cta|gl|sys"), _fence),
    Action("membar", slots("proxy", "alias|async"), _nothing),
    Action("fence", slots("sc|acq_rel|acquire|release?", SCOPES), _fence),
    Action("fence", slots("acquire|release", RESTRICTED, "cluster"), _fence),
    Action("fence", slots("proxy", "alias"), _nothing),
    Action("fence", slots("proxy", "alias", "acquire|release", "sys"), _nothing),
    Action("fence", slots("proxy", "async", "global|shared::cta|shared::cluster?"), _nothing),
    Action("fence", slots("proxy", "async::generic", "acquire|release", RESTRICTED, "cluster"), _nothing),
    Action("fence", slots("proxy", "async::generic", "release", RESTRICTED_READS, "cta|cluster"), _nothing),
    Action("fence", slots("proxy", "tensormap::generic", "acquire|release", SCOPES), _nothing),
    Action("fence", slots("mbarrier_init", "release", "cluster"), _nothing),
    Action("griddepcontrol", slots("launch_dependents|wait"), _nothing),
    Action("setmaxnreg", slots("inc|dec", "sync", "aligned", "u32"), _nothing),
    Action("nanosleep", slots("u32"), _nothing),
    Action("pmevent", slots("mask?"), _nothing),
)  # fmt: skip
