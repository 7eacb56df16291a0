"""crtgen.rpc"""
