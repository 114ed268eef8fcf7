"""Fusions whose steps of lowering are looked at."""

from __future__ import annotations

from taskfuse.lowering.steps import STEPS

NAMES = [step.name for step in STEPS]
