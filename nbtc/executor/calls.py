"""Calls (PTX ISA 9.7.12, "call"): to functions of the module, and to what the host provides."""

from __future__ import annotations

from nbtc.executor.action import Action
from nbtc.executor.form import slots
from nbtc.executor.lanes import Lanes


def call(lanes: Lanes) -> None:
    """call"""
    lanes.refuse("calls are not implemented")


def ret(lanes: Lanes) -> None:
    """ret from a function to where each lane was called."""
    lanes.refuse("calls are not implemented")


ACTIONS = (Action("call", slots("uni?"), call),)
