"""What the readers of kernel IR say of a kernel, as plain data: they make it, and the methods of kernels name it."""
