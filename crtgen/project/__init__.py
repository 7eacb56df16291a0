"""crtgen.project"""
