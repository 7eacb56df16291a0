"""crtgen.boards"""
