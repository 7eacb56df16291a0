"""Figures of models on boards, their limits, and the comparison of outputs."""
