"""Errors, files, child processes, text, trust, foreign formats: nothing here knows a network or a board."""
