"""Whatever is sent: a problem with a sentence that helps, nothing of it repeated, and the service as it was."""

from __future__ import annotations

import gzip
import json
import socket
from typing import Any

import httpx
import pytest

from tests.app.serving import Server

MARK = "zzmarkzz"  # part of what is sent; never to be seen in an answer
IRIS = {"model": "iris-mlp", "batch_size": 8}
LAYERS = {"layers": [{"type": "linear", "in": 4, "out": 3}], "input_shape": [4]}
JSON = {"Content-Type": "application/json"}


def assert_problem(answer: httpx.Response, *statuses: int) -> dict[str, Any]:
    """A problem document with a sentence; gives it."""
    assert answer.status_code in statuses, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = answer.json()
    assert document["status"] == answer.status_code
    assert len(document["detail"]) > 20
    assert {"type", "title"} <= document.keys()
    for leak in (MARK, "Traceback", "/home/", ".py", "site-packages"):
        assert leak not in answer.text
    return document


NOT_JSON: dict[str, bytes] = {
    "empty": b"",
    "blank": b" \n ",
    "words": b"please recommend " + MARK.encode(),
    "cut off": b'{"model": "iris-mlp", "batch_size": 8',
    "trailing": b'{"model": "iris-mlp", "batch_size": 8} zzmarkzz',
    "NaN": b'{"model": "iris-mlp", "batch_size": NaN}',
    "infinity": b'{"model": "iris-mlp", "batch_size": -Infinity}',
    "beyond floats": b'{"model": "iris-mlp", "batch_size": 1e999}',
    "beyond integers": b'{"model": "iris-mlp", "batch_size": ' + b"9" * 5000 + b"}",
    "lone surrogate": b'{"model": "\\ud800zzmarkzz", "batch_size": 8}',
    "surrogates in the wrong order": b'{"model": "\\udc00\\ud800", "batch_size": 8}',
    "not UTF-8": b'{"model": "\xff\xfezzmarkzz", "batch_size": 8}',
    "UTF-16": json.dumps(IRIS).encode("utf-16"),
    "a deep list": b"[" * 100_000,
    "a deep list that ends": b"[" * 100_000 + b"]" * 100_000,
    "a deep object": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "a deep model": b'{"batch_size": 8, "model": ' + b'{"layers": ' * 150 + b"1" + b"}" * 151,
    "a key twice": b'{"model": "iris-mlp", "batch_size": 8, "batch_size": 9}',
    "a list": b"[]",
    "a string": b'"iris-mlp"',
    "null": b"null",
    "a number": b"3",
}


@pytest.mark.parametrize("body", NOT_JSON.values(), ids=NOT_JSON.keys())
def test_what_is_no_json_object_is_refused(client: httpx.Client, body: bytes) -> None:
    assert_problem(client.post("/recommend", content=body, headers=JSON), 400)


def test_a_config_with_an_infinite_number_is_told_how_to_write_it(client: httpx.Client) -> None:
    body = b'{"model": {"huggingface": {"model_type": "mamba2", "time_step_limit": [0.0, Infinity]}}, "batch_size": 8}'
    document = assert_problem(client.post("/recommend", content=body, headers=JSON), 400)
    assert '{"__float__": "Infinity"}' in document["detail"]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_another_content_type_is_refused(client: httpx.Client, kind: str) -> None:
    assert_problem(client.post("/recommend", content=json.dumps(IRIS), headers={"Content-Type": kind}), 415)


INVALID: dict[str, dict[str, Any]] = {
    "no batch": {"model": "iris-mlp"},
    "no model": {"batch_size": 8},
    "batch of zero": {**IRIS, "batch_size": 0},
    "negative batch": {**IRIS, "batch_size": -8},
    "half a sample": {**IRIS, "batch_size": 1.5},
    "batch of true": {**IRIS, "batch_size": True},
    "batch as text": {**IRIS, "batch_size": "8"},
    "huge batch": {**IRIS, "batch_size": 10**18},
    "huge precise batch": {**IRIS, "batch_size": 10**400},
    "batch of null": {**IRIS, "batch_size": None},
    "unknown field": {**IRIS, MARK: 1},
    "unknown mode": {**IRIS, "mode": MARK},
    "unknown optimizer": {**IRIS, "optimizer": MARK},
    "unknown precision": {**IRIS, "precision": MARK},
    "unknown effort": {**IRIS, "effort": MARK},
    "unknown device": {**IRIS, "devices": [MARK]},
    "too many devices": {**IRIS, "devices": ["cpu"] * 10_000},
    "device of another kind": {**IRIS, "devices": [{}]},
    "no time": {**IRIS, "time_limit_seconds": 0},
    "negative time": {**IRIS, "time_limit_seconds": -1},
    "time for measuring nothing": {**IRIS, "time_limit_seconds": 5},
    "unknown profile": {**IRIS, "profile": MARK},
    "reading the loss every zeroth step": {**IRIS, "log_every": 0},
    "empty data set": {**IRIS, "dataset": {"samples": 0}},
    "unknown field of the data set": {**IRIS, "dataset": {"samples": 1, MARK: 1}},
    "unknown name": {**IRIS, "model": "resnet-5O"},
    "empty name": {**IRIS, "model": ""},
    "python": {**IRIS, "model": "os:getcwd"},
    "model of a number": {**IRIS, "model": 7},
    "model of a list": {**IRIS, "model": []},
    "model of nothing": {**IRIS, "model": {}},
    "unknown kind of model": {**IRIS, "model": {MARK: 1}},
    "two kinds of model": {**IRIS, "model": {**LAYERS, "summary": {}}},
    "no layers": {**IRIS, "model": {**LAYERS, "layers": []}},
    "unknown layer": {**IRIS, "model": {**LAYERS, "layers": [{"type": MARK}]}},
    "a billion layers": {**IRIS, "model": {**LAYERS, "layers": [{"type": "linear", "out": 10**9, "repeat": 10**9}]}},
    "many layers": {**IRIS, "model": {**LAYERS, "layers": ["relu"] * 100_000}},
    "a dimension of 1e18": {**IRIS, "model": {**LAYERS, "input_shape": [10**18]}},
    "a negative dimension": {**IRIS, "model": {**LAYERS, "input_shape": [-4]}},
    "a width of 1e18": {**IRIS, "model": {**LAYERS, "layers": [{"type": "linear", "in": 4, "out": 10**18}]}},
    "shapes that do not fit": {**IRIS, "model": {**LAYERS, "input_shape": [5]}},
    "a config without a type": {**IRIS, "model": {"huggingface": {}}},
    "a config with code": {
        **IRIS,
        "model": {
            "huggingface": {"model_type": "bert", "auto_map": {"AutoModel": "m.M"}},
            "task": "text-classification",
        },
    },
    "a config of a class of its own": {
        **IRIS,
        "model": {"huggingface": {"model_type": MARK, "auto_map": {"AutoModel": f"m.{MARK}"}}},
    },
    "a config with a path": {**IRIS, "model": {"huggingface": {"model_type": "/etc/passwd"}}},
    "a config with an address": {**IRIS, "model": {"huggingface": "https://example.com/config.json"}},
    "a summary without figures": {**IRIS, "model": {"summary": {}}},
}


@pytest.mark.parametrize("question", INVALID.values(), ids=INVALID.keys())
def test_a_question_that_makes_no_sense_is_refused(client: httpx.Client, question: dict[str, Any]) -> None:
    assert_problem(client.post("/recommend", json=question), 422)


def test_a_compressed_body_is_refused_as_such(client: httpx.Client) -> None:
    headers = {**JSON, "Content-Encoding": "gzip"}
    for method, address in (("POST", "/recommend"), ("PUT", "/profiles/x")):
        answer = client.request(method, address, content=gzip.compress(b"{}"), headers=headers)
        assert "Content-Encoding" in assert_problem(answer, 415)["detail"]
    assert client.post("/recommend", json=IRIS, headers={"Content-Encoding": "identity"}).is_success


def test_what_is_wrong_is_said_where_it_is(client: httpx.Client) -> None:
    problem = assert_problem(client.post("/recommend", json={**IRIS, "batch_size": 0, "mode": MARK}), 422)
    assert {error["pointer"] for error in problem["errors"]} == {"/batch_size", "/mode"}
    assert all(error["message"] in problem["detail"] for error in problem["errors"])


@pytest.mark.parametrize(
    ("body", "pointer", "words"),
    [
        (
            {**IRIS, "dataset": {"samples": 1, MARK: 1}},
            "/dataset",
            "dataset does not have. Known are: samples, epochs.",
        ),
        ({**IRIS, "dataset": 3}, "/dataset", "dataset should be an object."),
        ({**IRIS, "plans": [{}]}, "/plans/0/device", "plans[0].device is missing"),
        ({**IRIS, "plans": [{"device": "cpu", MARK: 1}]}, "/plans/0", "Known are: device, precision, threads."),
        ({**IRIS, "plans": {}}, "/plans", "plans should be a list."),
        ({**IRIS, "devices": [""]}, "/devices/0", "devices[0] is empty"),
        ({**IRIS, "model": 7}, "/model", "model should be a string or an object."),
    ],
)
def test_what_is_wrong_deep_in_a_body_is_a_plain_sentence(
    client: httpx.Client, body: dict[str, Any], pointer: str, words: str
) -> None:
    problem = assert_problem(client.post("/measurements", json=body), 422)
    assert any(error["pointer"] == pointer and words in error["message"] for error in problem["errors"])


@pytest.mark.parametrize("address", ["/livez", "/readyz", "/healthz", "/hardware", "/metrics", "/models", "/"])
def test_head_is_get_without_its_body(client: httpx.Client, address: str) -> None:
    answer = client.head(address)
    assert answer.status_code == client.get(address).status_code
    assert answer.content == b""
    assert int(answer.headers["content-length"]) > 0
    assert client.head("/recommend").status_code == 405


def test_near_names_are_offered(client: httpx.Client) -> None:
    problem = assert_problem(client.post("/recommend", json={**IRIS, "model": "iris-mpl"}), 422)
    assert "iris-mlp" in problem["suggestions"]
    problem = assert_problem(client.post("/recommend", json={**IRIS, "batchsize": 3}), 422)
    assert "Did you mean batch_size?" in problem["detail"]
    problem = assert_problem(client.get("/models/iris-mpl"), 404)
    assert "iris-mlp" in problem["suggestions"]


OTHER_BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "no seconds": ("/measurements", {**IRIS, "seconds": 0}),
    "seconds without end": ("/measurements", {**IRIS, "seconds": 1e9}),
    "an unknown precision of a plan": (
        "/measurements",
        {**IRIS, "plans": [{"device": "cpu", "precision": MARK}]},
    ),
    "an environment, which could load code": (
        "/measurements",
        {**IRIS, "plans": [{"device": "cpu", "environment": {"LD_PRELOAD": MARK}}]},
    ),
    "too many plans": ("/measurements", {**IRIS, "plans": [{"device": "cpu"}] * 1000}),
    "a batch of zero among others": ("/measurements", {**IRIS, "batch_sizes": [8, 0]}),
    "a plan on no device of ours": ("/measurements", {**IRIS, "plans": [{"device": "meta"}]}),
    "a plan on a device that is not here": ("/measurements", {**IRIS, "plans": [{"device": "cuda:63"}]}),
    "a plan in a precision that the CPU has not": (
        "/measurements",
        {**IRIS, "plans": [{"device": "cpu"}, {"device": "cpu", "precision": "tf32"}]},
    ),
    "a plan with more threads than cores": ("/measurements", {**IRIS, "plans": [{"device": "cpu", "threads": 4096}]}),
    "a summary, which cannot run": (
        "/measurements",
        {
            "batch_size": 8,
            "model": {
                "summary": {
                    "parameters": 10**6,
                    "flops_per_sample": 10**9,
                    "activation_bytes_per_sample": 10**6,
                    "operations": 50,
                }
            },
        },
    ),
    "a calibration of a device that is not here": ("/calibrations", {"devices": ["cpu", "cuda:63"]}),
    "a calibration of nothing known": ("/calibrations", {"devices": [MARK]}),
    "an unknown effort": ("/calibrations", {"effort": MARK}),
    "a name without letters": ("/calibrations", {"name": ""}),
    "a long name": ("/calibrations", {"name": MARK * 1000}),
}


@pytest.mark.parametrize(("address", "body"), OTHER_BODIES.values(), ids=OTHER_BODIES.keys())
def test_a_job_that_makes_no_sense_is_refused(client: httpx.Client, address: str, body: dict[str, Any]) -> None:
    assert_problem(client.post(address, json=body), 422)


@pytest.mark.parametrize(
    ("method", "address", "status"),
    [
        ("GET", "/nothing/here", 404),
        ("GET", "/models/zzmarkzz", 404),
        ("GET", "/measurements/zzmarkzz", 404),
        ("DELETE", "/measurements/zzmarkzz", 404),
        ("GET", "/measurements/zzmarkzz/events", 404),
        ("GET", "/calibrations/zzmarkzz", 404),
        ("GET", "/static/../app.py", 404),
        ("GET", "/static/%2e%2e/page.py", 404),
        ("GET", "/recommend", 405),
        ("PUT", "/hardware", 405),
        ("POST", "/livez", 405),
        ("PATCH", "/models", 405),
    ],
)
def test_addresses_and_methods_that_are_not_there_are_problems(
    client: httpx.Client, method: str, address: str, status: int
) -> None:
    answer = client.request(method, address)
    assert_problem(answer, status)
    assert status != 405 or answer.headers["allow"]


@pytest.mark.parametrize(
    ("method", "address", "allowed"),
    [
        ("OPTIONS", "/measurements", {"HEAD", "GET", "POST"}),
        ("POST", "/profiles/rig", {"HEAD", "GET", "PUT", "DELETE"}),
        ("PUT", "/calibrations/1", {"HEAD", "GET", "DELETE"}),
        ("HEAD", "/recommend", {"POST"}),
        ("POST", "/livez", {"HEAD", "GET"}),
        ("POST", "/measurements/1/events", {"GET"}),
        ("POST", "/static/page.js", {"HEAD", "GET"}),
    ],
)
def test_a_method_that_is_not_there_names_all_that_are(
    client: httpx.Client, method: str, address: str, allowed: set[str]
) -> None:
    answer = client.request(method, address)
    assert answer.status_code == 405
    assert set(answer.headers["allow"].split(", ")) == allowed


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "10.0.0.1", ""])
def test_a_request_addressed_to_another_host_is_refused(client: httpx.Client, host: str) -> None:
    assert_problem(client.get("/hardware", headers={"Host": host}), 421)


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost:1", "file://"])
def test_a_page_of_another_origin_is_refused(client: httpx.Client, origin: str) -> None:
    assert_problem(client.post("/recommend", json=IRIS, headers={"Origin": origin}), 403)


def test_our_own_page_and_other_names_of_this_host_are_served(client: httpx.Client, server: Server) -> None:
    assert client.get("/livez", headers={"Origin": server.url}).is_success
    assert client.get("/livez", headers={"Host": f"localhost:{server.port}"}).is_success
    assert client.get("/livez", headers={"Host": "[::1]:1"}).is_success


def exchange(server: Server, sent: bytes, *, chunks: int = 0, chunk: bytes = b"") -> httpx.Response:
    """Send bytes as they are (and then chunks, as long as the server takes them), and read one answer."""
    with server.connect() as connection:
        connection.sendall(sent)
        try:
            for _ in range(chunks):
                connection.sendall(chunk)
        except OSError:
            pass
        return read_answer(connection)


def read_answer(connection: socket.socket) -> httpx.Response:
    received = b""
    while b"\r\n\r\n" not in received:
        received += _receive(connection)
    head, _, body = received.partition(b"\r\n\r\n")
    status, *rows = head.decode().split("\r\n")
    headers = [tuple(row.split(": ", 1)) for row in rows]
    length = int(httpx.Headers(headers).get("content-length", 0))
    while len(body) < length:
        body += _receive(connection)
    return httpx.Response(int(status.split()[1]), headers=headers, content=body)


def _receive(connection: socket.socket) -> bytes:
    chunk = connection.recv(65536)
    assert chunk, "the connection was closed without an answer"
    return chunk


@pytest.mark.parametrize(
    ("target", "host", "status"),
    [
        (b"http://localhost/livez", b"evil.example", 200),
        (b"HTTP://127.0.0.1:80/models/iris%2Dmlp?a=b", b"evil.example", 200),
        (b"https://localhost", b"evil.example", 200),
        (b"http://localhost//livez", b"evil.example", 404),
        (b"http://evil.example/livez", b"localhost", 421),
        (b"http://localhost@evil.example/livez", b"localhost", 421),
        (b"http:///livez", b"localhost", 421),
        (b"ftp://localhost/livez", b"localhost", 404),
        (b"localhost:80", b"evil.example", 421),
    ],
)
def test_an_address_may_be_whole_and_then_names_the_host(
    server: Server, target: bytes, host: bytes, status: int
) -> None:
    """As through a proxy that only passes on."""
    answer = exchange(server, b"GET " + target + b" HTTP/1.1\r\nHost: " + host + b"\r\n\r\n")
    assert answer.is_success if status == 200 else assert_problem(answer, status)


MEGABYTE = b"x" * 2**20
POST = b"POST /recommend HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def test_a_huge_body_is_refused_unread_and_memory_stays_flat(server: Server, client: httpx.Client) -> None:
    assert client.get("/livez").is_success
    before = server.peak_bytes()
    announced = exchange(server, POST + b"Content-Length: 209715200\r\n\r\n", chunks=200, chunk=MEGABYTE)
    assert_problem(announced, 413)
    chunk = b"%x\r\n%s\r\n" % (len(MEGABYTE), MEGABYTE)
    assert_problem(exchange(server, POST + b"Transfer-Encoding: chunked\r\n\r\n", chunks=200, chunk=chunk), 413)
    with pytest.raises((httpx.TransportError, AssertionError)):
        assert client.post("/recommend", content=iter([MEGABYTE] * 200), headers=JSON).status_code != 413
    assert server.peak_bytes() - before < 40 * 2**20
    assert client.get("/livez").is_success


@pytest.mark.parametrize(
    "sent",
    [
        b"\x00\x01\x02 rubbish\r\n\r\n",
        b"GET / HTTQ/1.1\r\n\r\n",
        b"GET /livez HTTP/1.1\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 200_000 + b"\r\n\r\n",
        POST + b"Content-Length: -1\r\n\r\n",
        POST + b"Content-Length: 1e9\r\n\r\n",
        POST + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n",
        POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
    ids=["rubbish", "version", "no host", "two hosts", "long header", "minus", "float", "digits", "chunk", "TLS"],
)
def test_what_is_no_http_is_a_problem(server: Server, client: httpx.Client, sent: bytes) -> None:
    assert_problem(exchange(server, sent + b"\r\n\r\n"), 400, 413, 431)
    assert client.get("/livez").is_success
