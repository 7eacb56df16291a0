"""Models measured and compared: figures, locks, sweeps, tuning, pages of results."""
