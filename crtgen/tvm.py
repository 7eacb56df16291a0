"""TVM's micro host with crtgen's firmware: the project API, and a transport."""

from crtgen.api.tvm import *  # noqa: F403

if __name__ == "__main__":
    from crtgen.api.tvm.__main__ import main

    main()
