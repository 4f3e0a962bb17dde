"""What is wrong with a request that cannot be read is told by name and place, and the answer reaches who sent it."""

from __future__ import annotations

import json

import httpx
import pytest

from tests.app.api.test_bad_input import IRIS, JSON, MEGABYTE, POST, assert_problem, read_answer
from tests.app.serving import Server


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{'model': 'iris-mlp'}", "double quotes in line 1, column 2"),
        (b'{"model": "zzmarkzz",\n "batch_size": 8,}', "in line 2, column"),
        (b'{"model": "iris-mlp" "batch_size": 8}', "delimiter in line 1, column 22"),
        (b'{"model": "iris-mlp", "batch_size": 8', "it ends in the middle"),
        (b'{"model": "iris-mlp", "zzmarkzz": 8, "zzmarkzz": 9}', "one key twice, in line 1, column 38"),
        (b'{"batch_size": ' + b"9" * 5001 + b"}", "thousands of digits, in line 1, column 16"),
        (b'{"model": "\\ud800zzmarkzz"}', "half a character (a lone surrogate), in line 1, column 11"),
        (b'{"model": "\xffzzmarkzz"}', "not UTF-8 text: byte 12"),
    ],
)
def test_what_is_no_json_is_told_what_is_wrong_and_where_in_the_same_words_everywhere(
    client: httpx.Client, body: bytes, words: str
) -> None:
    for method, address in (("POST", "/recommend"), ("POST", "/measurements"), ("PUT", "/profiles/x")):
        answer = client.request(method, address, content=body, headers=JSON)
        assert words in assert_problem(answer, 400, 422)["detail"]


def test_a_byte_order_mark_is_no_fault(client: httpx.Client) -> None:
    answer = client.post("/recommend", content=b"\xef\xbb\xbf" + json.dumps(IRIS).encode(), headers=JSON)
    assert answer.status_code == 200


def test_a_body_far_beyond_its_bound_is_read_to_its_end_so_that_the_answer_is(server: Server) -> None:
    with server.connect() as connection:
        connection.sendall(POST + b"Content-Length: 31457280\r\n\r\n")
        for _ in range(30):
            connection.sendall(MEGABYTE)
        assert_problem(read_answer(connection), 413)
        assert connection.recv(1) == b""


LIVE = b"GET /livez HTTP/1.1\r\n"


@pytest.mark.parametrize(
    ("sent", "status", "code", "words"),
    [
        (b"GET /" + b"x" * 600_000, 414, "too-large", "first line may have 64 KiB"),
        (LIVE + b"Host: localhost\r\nX: " + b"x" * 600_000, 431, "too-large", "headers together may have 64 KiB"),
        (LIVE + b"Host: localhost\r\nHost: evil.example\r\n\r\n", 400, "twice", "come once"),
        (POST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n", 400, "twice", "come once"),
        (LIVE + b"\r\n", 400, "not-http", "send that header"),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"1" * 600_000, 400, "not-http", "no HTTP/1.1"),
    ],
    ids=["address", "headers", "two hosts", "two lengths", "no host", "chunk"],
)
def test_what_breaks_a_limit_of_http_is_told_which(
    server: Server, sent: bytes, status: int, code: str, words: str
) -> None:
    """And is read to its end, so that the answer is."""
    with server.connect() as connection:
        connection.sendall(LIVE + b"Host: localhost\r\n\r\n")  # on a connection that was of use before
        assert read_answer(connection).is_success
        connection.sendall(sent)
        problem = assert_problem(read_answer(connection), status)
        assert problem["type"] == f"/problems/{code}"
        assert words in problem["detail"]
        assert connection.recv(1) == b""
