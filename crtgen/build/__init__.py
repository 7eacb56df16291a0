"""crtgen.build"""
