"""Random cases for property tests: of taskfuse, and of loop nests that its users write.

:func:`random_case` makes a fusion with tasks, groups and a schedule from the answers of a :class:`Chooser`; :func:`check_case` checks all that
must hold of it. Your own math and schedule::

    check_case(fusion_case(my_fusion, {"N": 7}), FULL)                   # the schedule that you wrote, under every interleaving of the simulator
    check_case(random_schedule(RandomChooser(0), my_fusion, {"N": 7}))   # another one

``taskfuse.testing.strategies`` has the Hypothesis strategies; ``python -m taskfuse.testing.fuzz`` checks as many cases as wanted.
"""

from taskfuse.testing.case import Case, Outcome, fusion_case, random_case, random_schedule, reschedule, seeded_case
from taskfuse.testing.checks import FULL, CheckError, Effort, Property, check_case
from taskfuse.testing.chooser import Chooser, RandomChooser
from taskfuse.testing.measure import Distribution
from taskfuse.testing.minimize import shortest
from taskfuse.testing.options import EXACT, LARGE, PIPELINES, POINTWISE, USUAL, CaseOptions, Mix
from taskfuse.testing.program import Program

__all__ = [
    "EXACT",
    "FULL",
    "LARGE",
    "PIPELINES",
    "POINTWISE",
    "USUAL",
    "Case",
    "CaseOptions",
    "CheckError",
    "Chooser",
    "Distribution",
    "Effort",
    "Mix",
    "Outcome",
    "Program",
    "Property",
    "RandomChooser",
    "check_case",
    "fusion_case",
    "random_case",
    "random_schedule",
    "reschedule",
    "seeded_case",
    "shortest",
]
