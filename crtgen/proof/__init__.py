"""Claims about an image that hold for every input: the checker, counterexamples, certificates."""
