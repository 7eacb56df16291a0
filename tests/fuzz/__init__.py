"""Fuzzers of everything that crtgen reads from files; ``python -m tests.fuzz --help``."""
