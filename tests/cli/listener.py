"""A listener that gives the answers it is told to give."""

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer


class Listener(HTTPServer):
    """Gives its answers by path, 404 where it has none."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers = {}

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        status, body = self.server.answers.get(self.path, (404, b""))
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@contextmanager
def listen():
    """Serve on a free port of loopback until the block ends."""
    with Listener() as listener:
        thread = threading.Thread(target=listener.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield listener
        finally:
            listener.shutdown()
            thread.join()
