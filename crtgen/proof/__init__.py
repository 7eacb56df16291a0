"""Statements about an image for every input: the checker, counterexamples, certificates."""
