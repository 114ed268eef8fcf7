"""Looks for a fault in small launches of a kernel."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from taskfuse.kir import Kernel
from taskfuse.kir.nodes import For
from taskfuse.kir.printer import stmt_text
from taskfuse.kir.synchronization import Acquire, Barrier, SetMaxNReg, Wait
from taskfuse.kir.walk import looked_up
from taskfuse.testing.launches import Ending, Launches, Oracle, key
from taskfuse.testing.machine.fault import FaultFound, MachineFault, NoLaunch, OutOfSteps
from taskfuse.testing.machine.launch import MachineLaunch
from taskfuse.testing.machine.machine import MOST_STEPS, Order, SecondMachine
from taskfuse.testing.machine.python_kernel import compiled

ORDERS = (Order.RANDOM, Order.FIRST, Order.LAST)


def find_fault(
    kernel: Kernel,
    launches: Iterable[Mapping[str, int]] = ({},),
    orders: int = 2,
    most_steps: int = MOST_STEPS,
    endings: Launches | None = None,
) -> MachineFault | None:
    """The first fault of some launches, each in a few orders of threads and engines, or ``None``. Refused launches are skipped.

    In each order, tables about which nothing is promised hold other integers. A run ends after ``most_steps`` iterations of loops, of all threads together.
    ``endings`` counts the launches by their endings.
    """
    code = compiled(kernel)
    endings = Launches() if endings is None else endings
    used = looked_up(kernel)
    hold_anything = any(p.name in used and p.rises is None and p.holds is None for p in kernel.table_inputs)
    claims = any(isinstance(s, For) and s.queue is not None for s in code.sites)
    kinds = (Order.RANDOM,) if claims else ORDERS  # in the others one block claims all numbers
    if not (hold_anything or claims) and not any(isinstance(s, Barrier | Wait | Acquire | SetMaxNReg) for s in code.sites):  # nothing depends on the order
        orders = 1
    for extents in launches:
        ending, seed = Ending.DECIDED, 0
        try:
            launch = MachineLaunch(kernel, extents)
            for seed in range(orders):
                if seed and hold_anything:
                    launch = MachineLaunch(kernel, extents, seed)
                SecondMachine(code, launch, kinds[seed % len(kinds)], seed, most_steps).run()
        except NoLaunch:
            ending = Ending.REFUSED
        except OutOfSteps:
            ending = Ending.LONG
        except FaultFound as found:
            said = f"extents {dict(extents)}, order {seed} ({kinds[seed % len(kinds)].value})"
            text = stmt_text(code.sites[found.site], kernel) if found.site >= 0 else "at its end"
            return MachineFault(found.kind, found.reason, found.thread, text, said)
        finally:
            endings[key(Oracle.MACHINE, ending)] += 1
    return None
