"""crtgen.passes"""
