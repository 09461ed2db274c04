"""How connections spread over worker processes: one shared listening socket against SO_REUSEPORT, under uvloop.

Each worker answers a connection with its number, after computing for a moment, and holds it until the client leaves.
Prints, for each way of listening and of arriving, how many of the connections the busiest of the workers got.
"""

import argparse
import asyncio
import multiprocessing
import os
import socket
import statistics
import time
from collections import Counter
from contextlib import suppress

import uvloop

BUSY_SECONDS = 0.0005
RUNS = 20


def listen(reuse: bool, port: int) -> socket.socket:
    listener = socket.socket()
    if reuse:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.bind(("127.0.0.1", port))
    return listener


def work(listener: socket.socket, number: int) -> None:
    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        until = time.perf_counter() + BUSY_SECONDS
        while time.perf_counter() < until:
            pass
        writer.write(bytes([number]))
        with suppress(ConnectionError):
            await reader.read()
        writer.close()

    async def serve() -> None:
        server = await asyncio.start_server(hold, sock=listener, backlog=2048)
        await server.serve_forever()

    uvloop.run(serve())


async def connect(port: int) -> tuple[int, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    return (await reader.readexactly(1))[0], writer


async def arrive(port: int, connections: int, together: bool) -> Counter[int]:
    """Open the connections, at once or one after the other, and count who took them."""
    if together:
        held = await asyncio.gather(*(connect(port) for _ in range(connections)))
    else:
        held = [await connect(port) for _ in range(connections)]
    for _, writer in held:
        writer.close()
        await writer.wait_closed()
    return Counter(number for number, _ in held)


def measure(workers: int, reuse: bool, connections: int, together: bool) -> list[float]:
    first = listen(reuse, 0)
    port = first.getsockname()[1]
    listeners = [first, *(listen(True, port) for _ in range(workers - 1))] if reuse else [first] * workers
    fork = multiprocessing.get_context("fork")
    running = [fork.Process(target=work, args=(listener, number)) for number, listener in enumerate(listeners)]
    for process in running:
        process.start()
    time.sleep(0.5)
    try:
        return [max(uvloop.run(arrive(port, connections, together)).values()) / connections for _ in range(RUNS)]
    finally:
        for process in running:
            process.kill()
            process.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    workers = parser.parse_args().workers
    print(f"{os.cpu_count()} cores, {workers} workers, {RUNS} runs; an even share is {1 / workers:.0%}\n")
    print("| listening | arriving | connections | busiest worker, median | worst |\n|---|---|---|---|---|")
    for reuse in (False, True):
        for together in (False, True):
            for connections in (16, 128):
                shares = measure(workers, reuse, connections, together)
                print(
                    f"| {'SO_REUSEPORT' if reuse else 'one socket'} | {'together' if together else 'one by one'} "
                    f"| {connections} | {statistics.median(shares):.0%} | {max(shares):.0%} |"
                )


if __name__ == "__main__":
    main()
