"""The program of a unit that tests call: `python upstream_server.py ADDRESS PORT`. Its state is that of one process."""

import asyncio
import hashlib
import os
import sys
from contextlib import suppress

from aiohttp import WSMsgType, web

CHUNK = b"x" * 65_536

routes = web.RouteTableDef()
go_on = asyncio.Event()
hanging: set[object] = set()


@routes.route("*", r"/echo{tail:[\s\S]*}")
async def echo(request: web.Request) -> web.Response:
    body = await request.read()
    return web.json_response(
        {
            "method": request.method,
            "path": request.raw_path,
            "headers": {name.lower(): request.headers.getall(name) for name in request.headers},
            "body": body.decode(),
            "pid": os.getpid(),
        }
    )


@routes.post("/digest")
async def digest(request: web.Request) -> web.Response:
    seen, length = hashlib.sha256(), 0
    async for data in request.content.iter_any():
        seen.update(data)
        length += len(data)
    return web.json_response({"length": length, "sha256": seen.hexdigest()})


@routes.get("/large")
async def large(request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse()
    await answer.prepare(request)
    for _ in range(int(request.query["chunks"])):
        await answer.write(CHUNK)
    await answer.write_eof()
    return answer


@routes.get("/events")
async def events(request: web.Request) -> web.StreamResponse:
    """The second one comes when somebody has asked for it."""
    answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await answer.prepare(request)
    await answer.write(b"data: first\n\n")
    await go_on.wait()
    go_on.clear()
    await answer.write(b"data: second\n\n")
    await answer.write_eof()
    return answer


@routes.post("/go-on")
async def let_go_on(request: web.Request) -> web.Response:
    del request
    go_on.set()
    return web.Response(status=204)


@routes.get("/ws")
async def talk(request: web.Request) -> web.WebSocketResponse:
    socket = web.WebSocketResponse(protocols=("chat",))
    await socket.prepare(request)
    async for message in socket:
        if message.data == "bye":
            await socket.close(code=4_001)
        elif message.type is WSMsgType.TEXT:
            await socket.send_str(message.data.upper())
        elif message.type is WSMsgType.BINARY:
            await socket.send_bytes(message.data)
    return socket


@routes.get("/hang")
async def hang(request: web.Request) -> web.StreamResponse:
    """Answers, and then waits for the caller to go."""
    answer = web.StreamResponse()
    await answer.prepare(request)
    hanging.add(answer)
    try:
        with suppress(ConnectionError):
            while request.transport is not None and not request.transport.is_closing():
                await asyncio.sleep(0.05)
    finally:
        hanging.discard(answer)
    return answer


@routes.get("/hanging")
async def count_hanging(request: web.Request) -> web.Response:
    del request
    return web.json_response(len(hanging))


@routes.get("/redirect")
async def redirect(request: web.Request) -> web.Response:
    del request
    raise web.HTTPFound("/echo/elsewhere", headers={"Set-Cookie": "seen=1"})


@routes.get("/say")
async def say(request: web.Request) -> web.Response:
    """Answers with the headers of the query, any name any number of times, and the cookies that came."""
    answer = web.json_response({"cookie": request.headers.get("Cookie", "")})
    for name, value in request.query.items():
        answer.headers.add(name, value)
    return answer


@routes.get("/break")
async def break_off(request: web.Request) -> web.Response:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


@routes.post("/die")
async def die(request: web.Request) -> web.Response:
    del request
    os._exit(3)


def main(address: str, port: str) -> None:
    application = web.Application(client_max_size=1 << 30)
    application.add_routes(routes)
    web.run_app(application, host=address, port=int(port), print=None, handler_cancellation=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
