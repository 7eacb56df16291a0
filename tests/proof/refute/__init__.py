"""Tests of crtgen.proof.refute."""
