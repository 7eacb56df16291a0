"""crtgen.frontends"""
