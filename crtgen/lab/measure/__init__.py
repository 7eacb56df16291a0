"""Figures of models on boards, what they may cost, and whether their outputs are right."""
