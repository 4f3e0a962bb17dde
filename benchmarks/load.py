"""A load generator: `python -m benchmarks.load HOST PORT PATH CONNECTIONS SECONDS` prints JSON.

Keep-alive connections, each asking again as soon as it was answered; a process of its own, so that its work is not
the server's. Nothing but asyncio: a client library would cost more than the server.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from statistics import quantiles

TIMEOUT_SECONDS = 10.0


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> int:
    """One request over an open connection; gives the status."""
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(
        int(line.partition(b":")[2]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")
    )
    await reader.readexactly(length)
    return int(head.split(b" ", 2)[1])


async def keep_asking(host: str, port: int, path: str, until: float, pause: float) -> tuple[list[float], int]:
    """Seconds that each answer took, and how many were not 200. One is asked for even where opening the
    connection took all the time."""
    request = f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode()
    seconds, errors = [], 0
    reader, writer = await asyncio.open_connection(host, port)
    while not seconds or time.perf_counter() < until:
        started = time.perf_counter()
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                errors += await ask(reader, writer, request) != 200
        except (TimeoutError, OSError, asyncio.IncompleteReadError):
            errors += 1
            reader, writer = await asyncio.open_connection(host, port)
        seconds.append(time.perf_counter() - started)
        if pause:
            await asyncio.sleep(pause)
    writer.close()
    return seconds, errors


async def run_load(
    host: str, port: int, path: str, connections: int, seconds: float, pause: float = 0.0
) -> dict[str, float]:
    """Ask for some seconds over some connections, and sum up."""
    begun = time.perf_counter()
    until = begun + seconds
    runs = await asyncio.gather(*(keep_asking(host, port, path, until, pause) for _ in range(connections)))
    times = [value for values, _ in runs for value in values]
    return summarize(times, sum(errors for _, errors in runs), max(seconds, time.perf_counter() - begun))


def summarize(times: list[float], errors: int, seconds: float) -> dict[str, float]:
    """times: one or more."""
    hundredths = quantiles(times if len(times) > 1 else 2 * times, n=1000, method="inclusive")
    return {
        "requests": len(times),
        "errors": errors,
        "requests_per_second": len(times) / seconds,
        "p50_seconds": hundredths[499],
        "p90_seconds": hundredths[899],
        "p99_seconds": hundredths[989],
        "max_seconds": max(times),
    }


def main(arguments: list[str]) -> None:
    host, port, path, connections, seconds, *pause = arguments
    result = asyncio.run(
        run_load(host, int(port), path, int(connections), float(seconds), float(pause[0]) if pause else 0.0)
    )
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
