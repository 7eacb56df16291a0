"""Integer arithmetic of outputs: requantisation and averages in their cheapest exact forms."""
