"""The names of uvicorn that the server uses and that uvicorn does not promise to keep. After an
upgrade, this test names what has changed."""

from __future__ import annotations

import inspect
import re
import tomllib
from importlib.metadata import version

import pytest
import uvicorn
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from tests.repo.checkout import ROOT

METHODS: dict[type, dict[str, list[str]]] = {
    HttpToolsProtocol: {
        "__init__": ["config", "server_state", "app_state", "_loop"],
        "connection_made": ["transport"],
        "connection_lost": ["exc"],
        "eof_received": [],
        "data_received": ["data"],
        "pause_writing": [],
        "resume_writing": [],
        "timeout_keep_alive_handler": [],
        "_unset_keepalive_if_required": [],
        "_should_upgrade": [],
        "_start_asgi_task": ["cycle", "app"],
        "handle_websocket_upgrade": [],
        "on_message_begin": [],
        "on_header": ["name", "value"],
        "on_headers_complete": [],
        "on_body": ["body"],
        "on_message_complete": [],
        "on_response_complete": [],
    },
    WebSocketsSansIOProtocol: {
        "__init__": ["config", "server_state", "app_state", "_loop"],
        "connection_lost": ["exc"],
        "eof_received": [],
        "data_received": ["data"],
        "pause_writing": [],
        "resume_writing": [],
        "handle_connect": ["event"],
        "handle_events": [],
        "handle_ping": [],
        "handle_parser_exception": [],
        "keepalive_timeout": [],
        "send": ["message"],
    },
    FlowControl: {"pause_reading": [], "resume_reading": []},
    uvicorn.Server: {
        "__init__": ["config"],
        "serve": ["sockets"],
        "handle_exit": ["sig", "frame"],
    },
}

FIELDS: dict[type, str] = {
    HttpToolsProtocol: "config connections cycle expect_100_continue flow headers loop parser"
    " pipeline timeout_keep_alive timeout_keep_alive_task transport url",
    RequestResponseCycle: "disconnected keep_alive message_event response_complete"
    " response_started scope",
    WebSocketsSansIOProtocol: "close_sent conn handshake_complete handshake_initiated loop queue"
    " read_paused request response transport writable",
    FlowControl: "write_paused",
    uvicorn.Server: "force_exit lifespan should_exit",
}


@pytest.mark.parametrize(
    ("owner", "name", "parameters"),
    [(owner, *each) for owner, methods in METHODS.items() for each in methods.items()],
    ids=lambda each: getattr(each, "__name__", None) or str(each),
)
def test_a_method_is_there_with_its_parameters(
    owner: type, name: str, parameters: list[str]
) -> None:
    method = vars(owner).get(name)
    assert method is not None, f"{owner.__name__} has no {name} of its own"
    assert list(inspect.signature(method).parameters) == ["self", *parameters]


@pytest.mark.parametrize("owner", FIELDS, ids=lambda each: str(each.__name__))
def test_a_class_sets_its_fields(owner: type) -> None:
    source = inspect.getsource(owner)
    missing = [
        name
        for name in FIELDS[owner].split()
        if not re.search(rf"self\.{name}\b(?:: [^=\n]+)? = ", source)
    ]
    assert not missing


def test_only_the_minor_version_that_was_tried_is_installed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    (wanted,) = [each for each in project["dependencies"] if each.startswith("uvicorn")]
    found = re.fullmatch(r"uvicorn>=0\.(\d+),<0\.(\d+)", wanted)
    assert found is not None, wanted
    assert int(found[2]) == int(found[1]) + 1
    assert version("uvicorn").split(".")[:2] == ["0", found[1]]
