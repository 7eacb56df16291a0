"""crtgen.plan"""
