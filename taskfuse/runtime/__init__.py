"""Executables, the results of ``tf.compile``: of one kernel, of several, and of those specialized for the extents of a call."""
