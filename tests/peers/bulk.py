"""Bulk transfer with SHA-256, by sendfile one way and plain recv the other.

Usage: bulk.py serve PORT FILE [ADDRESS] | put ADDRESS PORT FILE | get ADDRESS PORT. A connection begins with "put\\n" or
"get\\n"; after "put" the data until the end of the stream, answered by its digest; after "get" the server sends FILE.
Each side prints the digest of what it received.
"""
import hashlib
import socket
import sys


def digest_of(connection):
    digest, buffer = hashlib.sha256(), bytearray(1 << 18)
    while count := connection.recv_into(buffer):
        digest.update(memoryview(buffer)[:count])
    return digest.hexdigest()


def send_file(connection, path):
    with open(path, "rb") as file:
        connection.sendfile(file)
    connection.shutdown(socket.SHUT_WR)


def serve(port, path, address="0.0.0.0"):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, int(port)), family=family) as listener:
        while True:
            connection, _ = listener.accept()
            with connection:
                if connection.recv(4, socket.MSG_WAITALL) == b"put\n":
                    connection.sendall(digest_of(connection).encode())
                else:
                    send_file(connection, path)
                    connection.recv(1)


def put(address, port, path):
    with socket.create_connection((address, port)) as connection:
        connection.sendall(b"put\n")
        send_file(connection, path)
        print(connection.recv(64, socket.MSG_WAITALL).decode())


def get(address, port):
    with socket.create_connection((address, port)) as connection:
        connection.sendall(b"get\n")
        print(digest_of(connection))


{"serve": serve, "put": put, "get": get}[sys.argv[1]](*sys.argv[2:])
