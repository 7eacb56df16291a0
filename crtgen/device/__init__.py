"""Devices that run an image: simulators and boards, the RPC, flash runners, reports of faults."""
