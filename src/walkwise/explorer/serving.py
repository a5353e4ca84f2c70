"""The explorer as an application, served to a browser on this computer."""

from __future__ import annotations

import ipaddress
import socket
import sys
import threading
import webbrowser
from pathlib import Path
from urllib.parse import urlsplit

from dash import Dash
from flask import Response, abort, request
from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server

from walkwise.errors import InputError
from walkwise.explorer.callbacks import connect, report_error
from walkwise.explorer.cases import Desk
from walkwise.explorer.layout import page
from walkwise.explorer.session import Session

#: The most bytes of a question: the page sends node ids, names and the order it shows.
_MOST_BYTES = 4 << 20
#: ... and of the name of a tab.
_MOST_OF_A_NAME = 100


def app(session: Session) -> Dash:
    """The explorer as a Dash application: everything it needs comes from its own server.

    Args:
        session: the model, the graphs, and what they are called.

    >>> import torch
    >>> from torch_geometric.data import Data
    >>> from torch_geometric.nn import GCN
    >>> graph = Data(torch.ones(3, 2), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))
    >>> app(Session(GCN(2, 8, num_layers=2, out_channels=3), [graph], index=1)).title
    'Walkwise explorer'
    """
    made = Dash(
        "walkwise.explorer",
        title="Walkwise explorer",
        update_title="",
        serve_locally=True,
        assets_folder=str(Path(__file__).parent / "assets"),
        add_log_handler=False,
        on_error=report_error,
    )
    made.index_string = made.index_string.replace("<html>", '<html lang="en">')
    made.layout = page(session)
    desk = Desk(session)
    connect(made, desk)

    def closed() -> Response:
        request.max_content_length = _MOST_OF_A_NAME
        desk.leave(request.get_data(as_text=True))
        return Response(status=204)

    made.server.add_url_rule("/closed", view_func=closed, methods=["POST"])
    scripts = " ".join(["'self'", *made.csp_hashes()])
    policy = (
        f"default-src 'self'; script-src {scripts}; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
        "object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )

    def guard(response: Response) -> Response:
        response.headers["Content-Security-Policy"] = policy
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Referrer-Policy"] = "no-referrer"
        return response

    made.server.after_request(guard)
    made.server.config["MAX_CONTENT_LENGTH"] = _MOST_BYTES
    return made


def serve(session: Session, *, host: str = "127.0.0.1", port: int = 8050, open_browser: bool = True) -> None:
    """Serves the explorer until it is interrupted; the address is written to the error stream.

    Only this computer can reach it, unless another ``host`` is named: whoever reaches the page sees the graphs and
    has the model run.

    Args:
        session: the model, the graphs, and what they are called.
        host: the address to listen on.
        port: the port; 0 takes any that is free.
        open_browser: show the page in the browser.
    """
    server = bind(session, host=host, port=port)
    shown = f"[{host}]" if ":" in host else host
    url = f"http://{shown}:{server.port}/"
    sys.stderr.write(f"Walkwise explorer: {url} (Ctrl+C stops it)\n")
    if not _is_local(host):
        sys.stderr.write("Anyone who can reach this address can see the graphs and run the model.\n")
    if open_browser:
        threading.Timer(0.3, webbrowser.open, [url]).start()
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        server.server_close()


def bind(session: Session, *, host: str = "127.0.0.1", port: int = 8050) -> BaseWSGIServer:
    """The server, listening but not yet answering.

    Args:
        session: the model, the graphs, and what they are called.
        host: the address to listen on.
        port: the port; 0 takes any that is free.
    """
    if not host:
        raise InputError(
            'host is empty, which would mean every network; give "127.0.0.1", or the address you mean.',
            argument="host",
            expected='an address, such as "127.0.0.1"',
            got=host,
        )
    if not isinstance(port, int) or not 0 <= port <= 65535:
        raise InputError(
            f"port must be a number from 0 to 65535, got {port!r}.",
            argument="port",
            expected="a number from 0 to 65535",
            got=port,
        )
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, port), family=family)  # werkzeug would print why it cannot, and exit
    except OSError as error:
        raise InputError(
            f"Cannot listen on {host}, port {port}: {error.strerror or error}.",
            argument="port",
            expected="a port that is free",
            got=port,
            remedy="Choose another port, or 0 for any.",
        ) from None
    made = app(session)
    made.server.before_request(lambda: _check_host(request.host, host))
    with listening:  # the server holds it on by a descriptor of its own
        port = listening.getsockname()[1]
        fd = listening.fileno()
        return make_server(host, port, made.server, threaded=True, request_handler=_Quiet, fd=fd)


def _check_host(asked: str, host: str) -> None:
    """Refuse a page elsewhere whose name leads here: only addresses, this computer's names and the host's are ours."""
    try:
        name = urlsplit(f"//{asked}").hostname or ""
        if name in ("localhost", host.lower(), socket.gethostname().lower()):
            return
        address = ipaddress.ip_address(name)
    except ValueError:
        abort(400)
    if _is_local(host) and not address.is_loopback:
        abort(400)


class _Quiet(WSGIRequestHandler):
    """Writes errors down, but not every request: moving a slider makes dozens."""

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Nothing."""


def _is_local(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
