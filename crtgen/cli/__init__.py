"""crtgen.cli"""
