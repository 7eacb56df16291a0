"""Tests of crtgen.prove."""
