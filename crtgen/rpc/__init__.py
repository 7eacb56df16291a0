"""The serial RPC: frames, sessions, messages (all sans-IO), and a client and a device on top."""

from crtgen.rpc.client import HOST, SERIAL, SIMULATOR, Client, Info, PoolUsage, Timeouts
from crtgen.rpc.connection import RemoteFunction, RemoteModule, RemoteTensor
from crtgen.rpc.executor import AotExecutor
from crtgen.rpc.server import ServedModel, Server, ServerStream
from crtgen.rpc.stream import Stream

__all__ = [
    "HOST",
    "SERIAL",
    "SIMULATOR",
    "AotExecutor",
    "Client",
    "Info",
    "PoolUsage",
    "RemoteFunction",
    "RemoteModule",
    "RemoteTensor",
    "ServedModel",
    "Server",
    "ServerStream",
    "Stream",
    "Timeouts",
]
