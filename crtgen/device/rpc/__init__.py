"""The serial RPC: frames, sessions and messages (all sans-IO), and a client and a device on top."""

from crtgen.device.rpc.client import HOST, SERIAL, SIMULATOR, Client, Info, PoolUsage, Timeouts
from crtgen.device.rpc.connection import RemoteFunction, RemoteModule, RemoteTensor
from crtgen.device.rpc.executor import AotExecutor
from crtgen.device.rpc.server import ServedModel, Server, ServerStream
from crtgen.device.rpc.stream import Stream

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
