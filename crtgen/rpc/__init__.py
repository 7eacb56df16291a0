"""The serial RPC: frames, sessions, messages (all sans-IO), and a client and a device on top."""

from crtgen.rpc.client import HOST, SERIAL, SIMULATOR, Client, Info, Memory, Timeouts
from crtgen.rpc.connection import RemoteFunction, RemoteModule, RemoteTensor
from crtgen.rpc.executor import AotExecutor
from crtgen.rpc.server import Model, Server, ServerStream
from crtgen.rpc.stream import Stream

__all__ = [
    "HOST",
    "SERIAL",
    "SIMULATOR",
    "AotExecutor",
    "Client",
    "Info",
    "Memory",
    "Model",
    "RemoteFunction",
    "RemoteModule",
    "RemoteTensor",
    "Server",
    "ServerStream",
    "Stream",
    "Timeouts",
]
