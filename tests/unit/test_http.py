from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from fleet import http


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.answer(200, json.dumps({"path": self.path, "host": self.headers["Host"]}).encode())

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/chunked":
            self.send_response(201)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
        else:
            self.answer(500, body)

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()
    thread.join(5)


def ask(request: http.Request) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(request.argv, input=request.stdin, capture_output=True, timeout=20, check=False)


def test_get_through_bash(port: int):
    response = http.parse(ask(http.get("127.0.0.1", port, "/readiness?x=1")).stdout)
    assert response.status == 200
    assert response.json() == {"path": "/readiness?x=1", "host": f"127.0.0.1:{port}"}


def test_post_through_bash_with_bytes_beyond_ascii(port: int):
    response = http.parse(ask(http.post("127.0.0.1", port, "/v1", {"prompt": "größe\n\"'$(x)"})).stdout)
    assert response.status == 500
    assert response.json() == {"prompt": "größe\n\"'$(x)"}


def test_a_chunked_answer_is_put_together(port: int):
    response = http.parse(ask(http.post("127.0.0.1", port, "/chunked", {})).stdout)
    assert (response.status, response.text) == (201, "abcde")


def test_a_refused_connection_is_an_exit_code():
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        free = server.server_address[1]
    done = ask(http.get("127.0.0.1", free, "/"))
    assert done.returncode == 7
    assert b"refused" in done.stderr
    assert done.stdout == b""


def test_what_is_no_answer():
    with pytest.raises(ValueError, match="not an HTTP answer"):
        http.parse(b"")
    with pytest.raises(ValueError, match="not an HTTP answer"):
        http.parse(b"SSH-2.0-OpenSSH_9.2\r\n")
    with pytest.raises(ValueError, match="cut short after 2 bytes"):
        http.parse(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nab")


def test_a_body_that_is_no_object():
    assert http.parse(b"HTTP/1.1 200 OK\r\n\r\nok").table() == {}
    assert http.parse(b"HTTP/1.1 200 OK\r\n\r\n[1]").table() == {}
    assert http.parse(b'HTTP/1.1 200 OK\r\n\r\n{"a":1}').table() == {"a": 1}


def test_urls():
    assert http.url("10.0.0.11", 8010, "/health") == "http://10.0.0.11:8010/health"
    assert http.url("fd00::11", 30000) == "http://[fd00::11]:30000"
