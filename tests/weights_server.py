"""A real HTTP server that has files of weights."""

import hashlib
import http.server
import io
import re
import zipfile

from cct_keras.converter.safetensors_file import write_safetensors


class Server(http.server.ThreadingHTTPServer):
    """Serves `files`; can end a response early, and counts requests."""

    def __init__(self):
        self.files, self.requests, self.cut = {}, [], None
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        content = self.server.files.get(self.path)
        self.server.requests.append((self.path, self.headers.get("Range")))
        if content is None:
            self.send_error(404)
            return
        tag = f'"{hashlib.md5(content).hexdigest()}"'
        start = 0
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or "")
        if asked and self.headers.get("If-Range") == tag:
            start = int(asked[1])
            if start >= len(content):
                self.send_error(416)
                return
        self.send_response(206 if start else 200)
        self.send_header("ETag", tag)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        end = len(content)
        if self.server.cut is not None:
            end, self.server.cut = self.server.cut, None
        self.wfile.write(content[start:end])

    def log_message(self, *arguments):
        pass


def as_bytes(state, zipped=None):
    buffer = io.BytesIO()
    write_safetensors(buffer, state)
    if zipped is None:
        return buffer.getvalue()
    outer = io.BytesIO()
    with zipfile.ZipFile(outer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipped, buffer.getvalue())
    return outer.getvalue()
