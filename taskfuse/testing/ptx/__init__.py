"""A reader of PTX that is independent of the CUDA printer, and its comparison with kernel IR (docs/ptx.md)."""
