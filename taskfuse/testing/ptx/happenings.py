"""The instructions that others observe: barriers, mbarriers, asynchronous copies, tensor cores, fences, atomics (PTX ISA, the section of each)."""

from __future__ import annotations

from taskfuse.testing.ptx.events import Kind
from taskfuse.testing.ptx.nodes import SIZES, Operand, PtxAddress, Register, Vector
from taskfuse.testing.ptx.operands import Happening, OperandReader, read_by

_LEVELS = {"cta": "sc.cta", "gl": "sc.gpu", "sys": "sc.sys"}
"""``membar`` as a fence (PTX ISA, "membar")."""
_MEANINGS = {"order": ("release", "acquire", "relaxed"), "scope": ("cta", "cluster"), "space": ("shared::cta", "shared::cluster")}


def happening(r: OperandReader) -> Happening | None:
    """The event of an instruction, if it is one."""
    i = r.i
    o = i.operands
    lost: tuple[Register, ...] = ()

    def event(kind: Kind, *operands: str, out: Operand | None = None, data: tuple[str, ...] = ()) -> Happening:
        result = out if isinstance(out, Register) else None
        return Happening(kind, operands, result, lost, read_by(*operands), data)

    def words(parts: tuple[str, ...]) -> str:
        return repr(".".join(parts))

    match i.opcode:
        case ("griddepcontrol", "wait"):
            return event(Kind.STREAM_WAIT)
        case ("bar", "sync") | ("barrier", "sync") | ("barrier", "sync", "aligned"):
            return event(Kind.BARRIER, r.value(o[0]), r.value(o[1]) if len(o) > 1 else "threads")
        case ("bar", "warp", "sync"):
            return event(Kind.WARP_BARRIER, r.value(o[0], 32))
        case ("shfl", "sync", "idx", "b32"):
            return event(Kind.AGREED, *(r.value(x, 32) for x in o[-4:]), out=o[0])
        case ("shfl", "sync", mode, "b32"):
            lost = r.outs(o[0])
            *_, distance, clamp, lanes = o
            kind = Kind.FROM_ABOVE if mode == "down" else Kind.SHUFFLE
            return event(kind, repr(mode), r.value(distance, 32), r.value(clamp, 32), r.value(lanes, 32), data=r.values(o[-4], 32))
        case ("barrier", "cluster", "arrive", *more):
            return event(Kind.CLUSTER_ARRIVE, words(tuple(more)))
        case ("barrier", "cluster", "wait", *more):
            return event(Kind.CLUSTER_WAIT, words(tuple(more)))
        case ("mbarrier", "init", "shared::cta" | "shared", "b64"):
            return event(Kind.INIT, r.address(o[0]), r.value(o[1], 32))
        case ("mbarrier", "arrive", "expect_tx", *more, "b64"):
            lost = r.outs(o[0])
            return event(Kind.EXPECT, _meaning(r, more, "release"), r.address(o[1]), r.value(o[2], 32))
        case ("mbarrier", "arrive", *more, "b64"):
            lost = r.outs(o[0])
            return event(Kind.ARRIVE, _meaning(r, more, "release"), r.address(o[1]), r.value(o[2], 32) if len(o) > 2 else "1")
        case ("mbarrier", "try_wait" | "test_wait", "parity", *more, "b64"):
            return event(Kind.WAIT, _meaning(r, more, "acquire"), r.address(o[1]), r.value(o[2], 32), out=o[0])
        case ("cp", "async", "mbarrier", "arrive", *more, "b64"):
            return event(Kind.COPY_ARRIVE, words(tuple(more)), r.address(o[0]))
        case ("cp", "async", "commit_group"):
            return event(Kind.COPY_COMMIT)
        case ("cp", "async", "wait_group"):
            return event(Kind.COPY_WAIT, r.value(o[0]))
        case ("cp", "async", "wait_all"):
            return event(Kind.COPY_WAIT, "0")
        case ("cp", "async", "ca" | "cg", "shared" | "shared::cta", "global"):
            size = r.value(o[2])
            return event(Kind.COPY, r.address(o[0]), r.address(o[1]), size, r.value(o[3], 32) if len(o) > 3 else size)
        case ("cp", "async", "bulk", "commit_group"):
            return event(Kind.BULK_COMMIT)
        case ("cp", "async", "bulk", "wait_group"):
            return event(Kind.BULK_WAIT, r.value(o[0]))
        case ("cp", "async", "bulk", "wait_group", "read"):
            return event(Kind.BULK_WAIT_READ, r.value(o[0]))
        case ("cp", "async", "bulk", "tensor", rank, "shared::cluster" | "shared::cta", "global", "mbarrier::complete_tx::bytes", *more):
            where, coordinates = _box(r, o[1], rank)
            if more not in ([], ["multicast::cluster"]):
                raise r.error("a bulk copy that is not known")
            mask = [r.value(o[3], 16)] if more else []
            return event(Kind.MULTICAST if more else Kind.BULK_LOAD, r.address(o[0]), where, r.address(o[2]), *mask, *coordinates)
        case ("cp", "async", "bulk", "tensor", rank, "global", "shared::cta", "bulk_group"):
            where, coordinates = _box(r, o[0], rank)
            return event(Kind.BULK_STORE, where, r.address(o[1]), *coordinates)
        case ("cp", "reduce", "async", "bulk", "tensor", rank, "global", "shared::cta", function, "tile", "bulk_group"):
            where, coordinates = _box(r, o[0], rank)
            return event(Kind.BULK_UPDATE, repr(function), where, r.address(o[1]), *coordinates)
        case ("wgmma", "fence", "sync", "aligned"):
            return event(Kind.WGMMA_FENCE)
        case ("wgmma", "commit_group", "sync", "aligned"):
            return event(Kind.WGMMA_COMMIT)
        case ("wgmma", "wait_group", "sync", "aligned"):
            return event(Kind.WGMMA_WAIT, r.value(o[0]))
        case ("wgmma", "mma_async", "sync", "aligned", *more):
            lost = r.outs(o[0])
            a = "-1" if isinstance(o[1], Vector) else r.value(o[1])
            data = (*r.values(o[0]), *(r.values(o[1]) if isinstance(o[1], Vector) else ()))
            return event(Kind.WGMMA, words(tuple(more)), str(len(lost)), a, *(r.value(x) for x in o[2:]), data=data)
        case ("mma", "sync", "aligned", *more):
            lost = r.outs(o[0])
            return event(Kind.MMA, words(tuple(more)), data=tuple(text for x in o[1:] for text in r.values(x)))
        case ("ldmatrix", "sync", "aligned", *more):
            lost = r.outs(o[0])
            return event(Kind.LOAD_MATRIX, words(tuple(more)), r.address(o[1]))
        case ("stmatrix", "sync", "aligned", *more):
            return event(Kind.STORE_MATRIX, words(tuple(more)), r.address(o[0]), data=r.values(o[1]))
        case ("setmaxnreg", way, "sync", "aligned", "u32"):
            return event(Kind.REGISTERS, repr(way), r.value(o[0]))
        case ("fence", *more):
            return event(Kind.FENCE, words(tuple(more)))
        case ("membar", level):
            return event(Kind.FENCE, repr(_LEVELS[level]))
        case ("red", "relaxed", "gpu", "global", function, *_):
            data = r.values(o[1])
            return event(Kind.UPDATE, repr(function), str(len(data)), r.address(o[0]), data=data)
        case ("red", *more):
            return event(Kind.RELEASE, words(tuple(more)), r.address(o[0]), r.value(o[1]))
        case ("ld", "acquire", *more):
            return event(Kind.ACQUIRE, words(tuple(more)), r.address(o[1]), out=o[0])
        case ("st", "release", *more):
            return event(Kind.PUBLISH, words(tuple(more)), r.address(o[0]), data=r.values(o[1]))
        case ("atom", *_, "cas", "b32" | "b64"):
            return event(Kind.EXCHANGE, words(i.opcode[1:]), r.address(o[1]), r.value(o[2], 8 * SIZES[i.opcode[-1]]), out=o[0], data=r.values(o[3]))
        case ("atom", *more):
            return event(Kind.COUNT, words(tuple(more)), r.address(o[1]), r.value(o[2]), out=o[0])
        case ("activemask", "b32"):
            return event(Kind.ACTIVE, out=o[0])
        case ("match", "all" | "any" as mode, "sync", "b32" | "b64"):
            *results, value, lanes = o
            lost = tuple(found for x in results for found in r.outs(x))
            return event(Kind.MATCH, repr(mode), r.value(lanes, 32), data=r.values(value))
        case ("vote", "sync", "ballot", "b32"):
            lost = r.outs(o[0])
            return event(Kind.BALLOT, r.value(o[2], 32), data=r.values(o[1], 1))
        case ("bar" | "barrier" | "mbarrier" | "shfl" | "wgmma" | "tcgen05" | "elect" | "redux" | "vote" | "match" | "griddepcontrol" | "nanosleep", *_):
            raise r.error("an instruction that is not known")
        case ("cp", *_):
            raise r.error("a copy that is not known")
        case _:
            return None


def _meaning(r: OperandReader, modifiers: list[str], order: str) -> str:
    """The order, scope and space of an instruction on an mbarrier, those that it does not name in full."""
    found = {"order": order, "scope": "cta", "space": ""}
    for m in modifiers:
        known = [name for name, words in _MEANINGS.items() if m in words]
        if not known:
            raise r.error("a modifier that is not known")
        found[known[0]] = m
    return repr(" ".join(found.values()))


def _box(r: OperandReader, operand: Operand, rank: str) -> tuple[str, list[str]]:
    """The tensor map and the coordinates of a bulk copy."""
    if not isinstance(operand, PtxAddress) or rank != f"{len(operand.coordinates)}d":
        raise r.error("coordinates that do not fit its rank")
    return r.value(operand.base), [r.value(c, 32) for c in operand.coordinates]
