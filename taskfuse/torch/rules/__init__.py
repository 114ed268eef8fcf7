"""What ATen ops are made of: the rows of the table of ops, and rules for signatures that differ from them."""
