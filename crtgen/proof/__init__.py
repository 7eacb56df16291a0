"""What can be said of an image for every input: the checker, counterexamples, certificates."""
