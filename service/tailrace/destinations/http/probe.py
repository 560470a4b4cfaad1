"""Tries the connection to the endpoint, without a request."""

from ssl import SSLContext

import anyio
from anyio.streams.tls import TLSStream

from tailrace.destinations.http.access import EndpointAccess
from tailrace.errors import Unavailable, describe


async def probe_connection(access: EndpointAccess, seconds: float) -> str:
    """Opens a connection, with TLS, and closes it; says to what. Raises :class:`Unavailable`.

    With a proxy it is one to the proxy: the endpoint behind it is not tried.
    """
    url = access.proxy or access.url
    what = f"{'the proxy ' if access.proxy else ''}{url.origin()}"
    try:
        with anyio.fail_after(seconds):
            stream = await anyio.connect_tcp(url.host or "", url.port or 0)
            async with stream:
                if isinstance(access.tls, SSLContext) and url.scheme == "https":
                    await TLSStream.wrap(
                        stream,
                        hostname=url.host,
                        ssl_context=access.tls,
                        standard_compatible=False,
                    )
    except TimeoutError:
        raise Unavailable(f"{what} accepts no connection within {seconds:g} s") from None
    except (OSError, ValueError, anyio.BrokenResourceError) as error:
        raise Unavailable(f"{what} accepts no connection: {describe(error)}") from error
    return f"{what} accepts connections; no request was sent"
