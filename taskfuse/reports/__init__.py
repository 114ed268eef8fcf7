"""Reports on a kernel, as plain data: the readers of kernel IR make them, and the methods of kernels name their types."""
