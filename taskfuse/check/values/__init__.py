"""The value layer: every element of every output is what the kernel's definitions say, in every interleaving (docs/proof.md, "Values")."""
