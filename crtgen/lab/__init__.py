"""Measures and compares models: figures, locks, sweeps, tuning, reports."""
