"""Echo over asyncio streams.

Usage: asyncio_echo.py serve PORT [ADDRESS] | call ADDRESS PORT CONNECTIONS MESSAGES. The caller compares every reply and ends
each connection by closing only its own direction first.
"""
import asyncio
import random
import sys


async def answer(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


async def serve(port, address="0.0.0.0"):
    server = await asyncio.start_server(answer, address, port, backlog=1024)
    async with server:
        await server.serve_forever()


async def call(address, port, number, messages):
    dice = random.Random(number)
    reader, writer = await asyncio.open_connection(address, port)
    moved = 0
    for _ in range(messages):
        data = dice.randbytes(dice.choice([1, 64, 1448, 5000, 70000]))
        writer.write(data)
        await writer.drain()
        assert await reader.readexactly(len(data)) == data, "a wrong reply"
        moved += len(data)
    writer.write(b"last words")
    writer.write_eof()
    assert await reader.read() == b"last words", "the half-closed connection lost data"
    writer.close()
    await writer.wait_closed()
    return moved


async def call_all(address, port, connections, messages):
    moved = await asyncio.gather(*(call(address, port, n, messages) for n in range(connections)))
    print(f"{connections} connections, {sum(moved) / 1e6:.0f} MB echoed")


if sys.argv[1] == "serve":
    asyncio.run(serve(int(sys.argv[2]), *sys.argv[3:4]))
else:
    asyncio.run(call_all(sys.argv[2], *map(int, sys.argv[3:6])))
