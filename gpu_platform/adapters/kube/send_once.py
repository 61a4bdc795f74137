"""A write is sent once.

Left to itself, aiohttp sends a PUT or DELETE again when a kept-alive connection breaks. The first one may have been
carried out; the second then meets a conflict with our own write, which looks like somebody else's.
"""

import aiohttp


async def send_once(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    try:
        return await handler(request)
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        if request.method == "GET":
            raise
        # Of this class aiohttp does not think that trying again helps.
        raise aiohttp.ClientConnectionError(str(error)) from error
