"""Whatever breaks inside: the caller gets the envelope, and nothing of the inside."""

import httpx

from platform_api.app import build_routes
from platform_api.http.middleware import Frame
from platform_api.metrics import ApiMetrics


async def test_an_error_that_nobody_thought_of_is_answered_in_the_envelope() -> None:
    app = build_routes()

    @app.get("/broken")
    async def broken() -> None:
        raise KeyError("a secret of the inside")

    framed = Frame(
        app, body_limit=1_000, in_flight_limit=10, client_seconds=10, tenant_of=lambda _: None, metrics=ApiMetrics()
    )
    transport = httpx.ASGITransport(framed)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as api:
        answer = await api.get("/broken")
    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "internal_error"
    assert answer.json()["error"]["requestID"] == answer.headers["X-Request-ID"]
    assert "secret" not in answer.text
