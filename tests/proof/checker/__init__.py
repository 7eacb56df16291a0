"""Tests of crtgen.proof.checker."""
