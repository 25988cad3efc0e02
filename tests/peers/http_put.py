"""An HTTP/1.1 server that answers PUT with the SHA-256 of what was sent, and GET /N with N bytes.

Usage: http_put.py PORT [ADDRESS]
"""
import hashlib
import http.server
import socket
import sys


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_PUT(self):
        digest, left = hashlib.sha256(), int(self.headers["Content-Length"])
        while left and (data := self.rfile.read(min(left, 65536))):
            digest.update(data)
            left -= len(data)
        self.answer(200, digest.hexdigest().encode())

    def do_GET(self):
        name = self.path[1:]
        self.answer(200, b"x" * int(name)) if name.isdigit() else self.answer(404, b"not a number")

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


ADDRESS = sys.argv[2] if len(sys.argv) > 2 else "0.0.0.0"


class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6 if ":" in ADDRESS else socket.AF_INET


Server((ADDRESS, int(sys.argv[1])), Handler).serve_forever()
