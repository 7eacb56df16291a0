"""Results as JUnit XML, which is XML whatever a device says."""

from xml.etree import ElementTree

import pytest

from crtgen.base.errors import RemoteError
from crtgen.base.text import printable
from crtgen.device.rpc import Client, Server, ServerStream
from crtgen.lab.measure.targets import TargetOutcome, junit
from crtgen.lab.measure.verification import Verdict

EVIL = "\0\x1b[2J\ud800\ufffe\r<]]>&\"'"


def refused() -> RemoteError:
    """What comes of a device that fails, and says the most that UTF-8 can."""

    def fail() -> None:
        raise ValueError(EVIL.replace("\ud800", ""))

    with Client(ServerStream(Server({"fail": fail}))) as client, pytest.raises(RemoteError) as caught:
        client.function("fail")()
    return caught.value


def test_text_of_devices_and_files_is_xml() -> None:
    error = refused()
    error.hint = EVIL
    outcomes = [
        TargetOutcome(EVIL, "host", "host", (Verdict(EVIL, None),)),
        TargetOutcome("m", "host", "host", error=error),
        TargetOutcome("m", EVIL, "board", skipped=EVIL),
    ]
    suites = ElementTree.fromstring(junit(outcomes)).findall("testsuite")
    assert suites[0].get("name") == f"{printable(EVIL)} on host"
    case = suites[0].find("testcase")
    assert case is not None
    assert case.get("name") == printable(EVIL)
    failure = suites[1].find("testcase/error")
    assert failure is not None
    assert (failure.get("message"), failure.text) == (str(error), printable(EVIL))
    assert r"\x00\x1b[2J\ufffe\r<]]>" in str(error)
