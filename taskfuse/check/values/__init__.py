"""The value layer: every element of every output has the value that the kernel's definitions give, in every interleaving (docs/proof.md, "Values")."""
