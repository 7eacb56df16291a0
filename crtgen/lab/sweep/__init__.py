"""Sweeps: models on boards with every choice of options, by many workers, into one store."""
