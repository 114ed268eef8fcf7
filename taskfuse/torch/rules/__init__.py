"""The meaning of ATen ops: the rows of the table of ops, and rules for signatures that differ from them."""
