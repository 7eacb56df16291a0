"""crtgen.codegen"""
