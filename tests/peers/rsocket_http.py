"""One answer of HTTP by the C library's calls, for Debian's librspreload.so: it stands in front of accept(), and Python
itself calls accept4(), which it leaves alone.

Usage: rsocket_http.py ADDRESS PORT BYTES. Prints the SHA-256 of what it sends.
"""
import ctypes
import hashlib
import os
import socket
import sys

library = ctypes.CDLL(None, use_errno=True)


def checked(result):
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def main(address, port, count):
    listener = socket.socket()
    listener.bind((address, int(port)))
    listener.listen(1)
    body = os.urandom(int(count))
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body)
    connection = checked(library.accept(listener.fileno(), None, None))
    room = ctypes.create_string_buffer(4096)
    request = b""
    while b"\r\n\r\n" not in request:
        got = checked(library.recv(connection, room, len(room), 0))
        request += room.raw[:got]
    answer = head + body
    sent = 0
    while sent < len(answer):
        sent += checked(library.send(connection, answer[sent:], len(answer) - sent, 0))
    checked(library.shutdown(connection, socket.SHUT_WR))
    # Until the client has closed.
    while checked(library.recv(connection, room, len(room), 0)) > 0:
        pass
    checked(library.close(connection))
    print(hashlib.sha256(body).hexdigest())


main(*sys.argv[1:])
