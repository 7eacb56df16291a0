"""crtgen.ops"""
