"""Sweeps: models on boards with all combinations of options, by many workers, into one store."""
