"""crtgen.run"""
