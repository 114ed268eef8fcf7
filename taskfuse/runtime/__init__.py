"""Executables, the results of ``tf.compile``: of one kernel, of several kernels, and specialized for the extents of a call."""
