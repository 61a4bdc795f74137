"""The lock of an API without keys (`auth: none`): only programs on this machine call it, and no web page.

It listens on loopback, which the browser of the same user reaches too. A page of another site can send requests there
(cross-site request forgery), and read the answers once its own name points to 127.0.0.1 (DNS rebinding). Both show in
headers that a page cannot change.
"""

from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

from gpu_platform.domain.hosts import is_loopback
from platform_api.http.errors import ApiError, forbidden
from platform_api.http.middleware import Application, Receive, Scope, Send

Header = tuple[bytes, bytes]

OWN_SITES = ("same-origin", "none")
"""Values of `Sec-Fetch-Site`: the API's own page, and an address that the user typed."""


def check_local_caller(headers: Iterable[Header], public_url: str | None) -> ApiError | None:
    """The refusal of a request with these headers; None for one that may pass.

    | Host                                 | Origin                         | Sec-Fetch-Site            | answer  |
    | ------------------------------------ | ------------------------------ | ------------------------- | ------- |
    | missing, twice, any other            | any                            | any                       | 421     |
    | loopback, or the one of `publicURL`  | another than Host, publicURL   | any                       | 403     |
    | loopback, or the one of `publicURL`  | none, Host, publicURL          | `cross-site`, `same-site` | 403     |
    | loopback, or the one of `publicURL`  | none, Host, publicURL          | none or any other         | passes  |
    """
    lowered = [(name.lower(), value.decode("latin-1").strip().lower()) for name, value in headers]
    hosts = [value for name, value in lowered if name == b"host"]
    public = urlsplit(public_url.lower()) if public_url else None
    if len(hosts) != 1 or not _is_own_host(hosts[0], public.hostname if public else None):
        return ApiError(
            421,
            "misdirected_request",
            f'Host is "{", ".join(hosts)}": without keys (auth: none) this API answers to localhost, 127.0.0.1 and the '
            "host of publicURL only; call it there, or set auth: keys",
        )
    origins = [value for name, value in lowered if name == b"origin"]
    allowed = [f"http://{hosts[0]}", f"https://{hosts[0]}", *([f"{public.scheme}://{public.netloc}"] if public else [])]
    if any(origin not in allowed for origin in origins):
        return _refuse_page(f'Origin is "{", ".join(origins)}"')
    sites = [value for name, value in lowered if name == b"sec-fetch-site"]
    if any(site not in OWN_SITES for site in sites):
        return _refuse_page(f'Sec-Fetch-Site is "{", ".join(sites)}"')
    return None


def only_local_callers(application: Application, public_url: str | None) -> Application:
    """The application, with requests of web pages refused before it sees them."""

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers: Sequence[Header] = scope["headers"]
            refusal = check_local_caller(headers, public_url)
            if refusal is not None:
                raise refusal
        await application(scope, receive, send)

    return call


def _is_own_host(authority: str, public_host: str | None) -> bool:
    try:
        host = urlsplit(f"//{authority}").hostname
    except ValueError:
        return False
    return host is not None and (is_loopback(host) or host == public_host)


def _refuse_page(what: str) -> ApiError:
    return forbidden(
        f"{what}: without keys (auth: none) web pages of other origins may not call this API; "
        "call it from a program, or set auth: keys"
    )
