"""Figures of models on boards, their limits, and whether outputs are right."""
