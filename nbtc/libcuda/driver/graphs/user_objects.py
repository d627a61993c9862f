"""User objects (CUDA Driver API, "User Objects"): what lives as long as graphs that use it, and its destructor."""

from __future__ import annotations

import ctypes

from nbtc.libcuda import host
from nbtc.libcuda.driver.streams import check_code
from nbtc.libcuda.errors import INVALID_VALUE, SUCCESS
from nbtc.libcuda.registry import driver
from nbtc.libcuda.state import handles
from nbtc.libcuda.streams import Graph, UserObject

NO_DESTRUCTOR_SYNC = 1  # CU_USER_OBJECT_NO_DESTRUCTOR_SYNC, which has to be given
MOVE = 1  # CU_GRAPH_USER_OBJECT_MOVE: the caller's references become the graph's
MOST = (1 << 31) - 1  # references at once


@driver
def cuUserObjectCreate(out: int, data: int, destroy: int, count: int, flags: int) -> int:
    if flags != NO_DESTRUCTOR_SYNC or not 1 <= count <= MOST or not check_code(destroy):
        return INVALID_VALUE
    host.put64(out, 0)
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(destroy)
    made = UserObject(lambda: call(data or None), count)
    made.handle = handles.add(made)
    host.put64(out, made.handle)
    return SUCCESS


@driver
def cuUserObjectRetain(handle: int, count: int) -> int:
    if not 1 <= count <= MOST:
        return INVALID_VALUE
    handles.get(handle, UserObject).count += count
    return SUCCESS


@driver
def cuUserObjectRelease(handle: int, count: int) -> int:
    found = handles.get(handle, UserObject)
    if not 1 <= count <= found.count:
        return INVALID_VALUE
    found.release(count)
    return SUCCESS


@driver
def cuGraphRetainUserObject(graph: int, handle: int, count: int, flags: int) -> int:
    users, found = handles.get(graph, Graph).users, handles.get(handle, UserObject)
    if not 1 <= count <= (found.count if flags == MOVE else MOST) or flags not in (0, MOVE):
        return INVALID_VALUE
    found.count += 0 if flags == MOVE else count
    users[found] = users.get(found, 0) + count
    return SUCCESS


@driver
def cuGraphReleaseUserObject(graph: int, handle: int, count: int) -> int:
    users, found = handles.get(graph, Graph).users, handles.get(handle, UserObject)
    if not 1 <= count <= users.get(found, 0):
        return INVALID_VALUE
    users[found] -= count
    found.release(count)
    return SUCCESS
