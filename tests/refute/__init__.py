"""Tests of crtgen.refute."""
