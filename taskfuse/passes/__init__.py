"""Kernel -> kernel passes: each a small pure function with a name."""
