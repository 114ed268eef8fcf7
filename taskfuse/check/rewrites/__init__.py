"""Rewritings: a kernel's definitions compute the same as the original fusion, from before scheduling calls replaced definitions."""
