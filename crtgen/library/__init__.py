"""crtgen.library"""
