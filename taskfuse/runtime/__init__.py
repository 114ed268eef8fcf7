"""What ``tf.compile`` makes: executables of one kernel, of several, and of those that are made at a call for its extents."""
