"""Random cases for property tests: of taskfuse, and of loop nests that its users write.

``random_case`` makes a fusion with tasks, groups and a schedule from the answers of a :class:`Chooser`; ``check_case`` checks all that must
hold of it. ``taskfuse.testing.strategies`` has the Hypothesis strategy, ``python -m taskfuse.testing.fuzz`` runs as many cases as wanted.
"""
