"""Rewritings: the definitions of a kernel compute what the fusion that was written computes, before scheduling calls replaced definitions."""
