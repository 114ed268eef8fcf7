"""Normalizations that schedulers are tried on."""

from taskfuse.schedulers import Keep, RowConfig

REGISTERS, SHARED, NOTHING = RowConfig(32, 2, 1, keep=Keep.REGISTERS), RowConfig(64, 1, 2, keep=Keep.SHARED), RowConfig(32, 1, 2)
