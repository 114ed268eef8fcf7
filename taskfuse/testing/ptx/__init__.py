"""A reading of PTX that knows nothing of the CUDA printer, compared with kernel IR (docs/ptx.md)."""
