"""A web server for tests.

It resumes, and on demand it drops, lies, refuses or sends the wrong thing. One behaviour a request.
"""

import http.server
import re
import socket
import struct
import threading
from contextlib import contextmanager


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        asked = self.headers.get("Range")
        self.server.ranges.append(asked)
        behave = self.server.script.pop(0) if self.server.script else ranged
        behave(
            self,
            self.server.files.get(self.path),
            int(re.fullmatch(r"bytes=(\d+)-", asked)[1]) if asked else 0,
        )

    def head(self, code, **headers):
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()

    def body(self, data):
        self.server.sent += len(data)
        self.wfile.write(data)

    def log_message(self, *args):
        pass


class Server(http.server.ThreadingHTTPServer):
    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.script, self.ranges, self.sent = {}, [], [], 0

    def url(self, path):
        return f"http://127.0.0.1:{self.server_address[1]}{path}"

    def handle_error(self, *args):
        """A client that hangs up is no error here."""


@contextmanager
def serving():
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def ranged(handler, data, start, upto=None, shift=0):
    """As a good server.

    With `upto` it hangs up after that many bytes, with `shift` it sends others than it was asked
    for.
    """
    if data is None:
        return handler.head(404, Content_Length=0)
    if start >= len(data):
        return handler.head(416, Content_Length=0, Content_Range=f"bytes */{len(data)}")
    start += shift
    rest = data[start:]
    if start:
        handler.head(
            206,
            Content_Length=len(rest),
            Content_Range=f"bytes {start}-{len(data) - 1}/{len(data)}",
        )
    else:
        handler.head(200, Content_Length=len(rest))
    return handler.body(rest[:upto])


def dropping(upto):
    return lambda handler, data, start: ranged(handler, data, start, upto)


def shifted(by):
    return lambda handler, data, start: ranged(handler, data, start, shift=by)


def whole(handler, data, start, upto=None):
    """Knows nothing of ranges."""
    handler.head(200, Content_Length=len(data))
    handler.body(data[:upto])


def unannounced(upto=None):
    """Does not say how long the file is."""

    def behave(handler, data, start):
        handler.head(200)
        handler.body(data[:upto])

    return behave


def reset(upto):
    """Not a goodbye but a reset of the connection."""

    def behave(handler, data, start):
        ranged(handler, data, start, upto)
        handler.wfile.flush()
        handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        handler.connection.close()

    return behave


def status(code):
    return lambda handler, data, start: handler.head(code, Content_Length=0)


def redirect(url):
    return lambda handler, data, start: handler.head(302, Location=url, Content_Length=0)


def endless(handler, data, start):
    handler.head(200)
    for _ in range(200):
        handler.body(bytes(1 << 16))
