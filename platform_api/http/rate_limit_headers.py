"""The `RateLimit` fields on every answer to a request with a key, and on the 429 for failed logins. Plain ASGI, as the
frame around it."""

from collections.abc import Iterable

from platform_api.http.middleware import Application, Header, Message, Receive, Scope, Send

STATE = "rate_limit_headers"
"""Where the lock on the routes leaves them: an attribute of `request.state`."""


class RateLimitHeaders:
    def __init__(self, application: Application) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with(message: Message) -> None:
            if message["type"] == "http.response.start":
                fields = scope.get("state", {}).get(STATE) or {}
                message["headers"] = add_fields(message.get("headers", ()), fields)
            await send(message)

        await self._application(scope, receive, send_with)


def add_fields(headers: Iterable[Header], fields: dict[str, str]) -> list[Header]:
    """Adds the fields that are not there yet: a unit that is called through the API may have limits of its own."""
    given = list(headers)
    names = {name.lower() for name, _ in given}
    own = ((name.lower().encode(), value.encode()) for name, value in fields.items())
    return [*given, *(header for header in own if header[0] not in names)]
