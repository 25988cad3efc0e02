"""Data with the SYN (TCP Fast Open, RFC 7413), both ends.

Usage: fast_open.py serve ADDRESS PORT CONNECTIONS | call ADDRESS PORT [PIECES]. The server answers each connection with
what it got, and whether the SYN carried some of it. The client opens connections in each way that Linux has, and prints
which of their SYNs carried data, at both ends. A program that is neither prints nothing of SYNs: http ADDRESS PORT
serves one document by HTTP, with Fast Open.
"""
import hashlib
import select
import socket
import sys

MSG_FASTOPEN = 0x20000000
TCP_FASTOPEN, TCP_FASTOPEN_CONNECT = 23, 30
# tcpi_options of struct tcp_info, and the bit for data of a SYN that was acknowledged.
OPTIONS_AT, SYN_DATA = 5, 32


def family_of(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def had_data(connection):
    return bool(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 64)[OPTIONS_AT] & SYN_DATA)


def listener(address, port):
    server = socket.socket(family_of(address))
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((address, port))
    server.setsockopt(socket.IPPROTO_TCP, TCP_FASTOPEN, 16)
    server.listen(16)
    return server


def read_all(connection):
    got = b""
    while piece := connection.recv(65536):
        got += piece
    return got


def serve(address, port, connections):
    server = listener(address, port)
    for _ in range(connections):
        connection, _ = server.accept()
        with connection:
            got = read_all(connection)
            connection.sendall(f"{len(got)} {hashlib.sha256(got).hexdigest()} {int(had_data(connection))}".encode())


def http(address, port):
    server = listener(address, port)
    while True:
        connection, _ = server.accept()
        with connection:
            request = b""
            while b"\r\n\r\n" not in request:
                request += connection.recv(65536)
            body = f"{int(had_data(connection))}\n".encode()
            connection.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)


def finish(connection, sent):
    """Returns whether the SYN carried data, where both ends agree."""
    connection.setblocking(True)
    connection.shutdown(socket.SHUT_WR)
    length, digest, there = read_all(connection).decode().split()
    here = had_data(connection)
    assert (int(length), digest) == (len(sent), hashlib.sha256(sent).hexdigest()), f"{length} of {len(sent)} bytes"
    assert here == (there == "1"), f"data of the SYN: here {here}, there {there}"
    connection.close()
    return here


def with_sendto(to, data):
    connection = socket.socket(family_of(to[0]))
    sent = connection.sendto(data, MSG_FASTOPEN, to)
    assert sent == len(data), f"a blocking call sent {sent} of {len(data)}"
    return finish(connection, data)


def with_sendmsg(to, data):
    connection = socket.socket(family_of(to[0]))
    middle = len(data) // 2
    sent = connection.sendmsg([data[:middle], data[middle:]], [], MSG_FASTOPEN, to)
    assert sent == len(data), f"a blocking call sent {sent} of {len(data)}"
    return finish(connection, data)


def without_waiting(to, data):
    connection = socket.socket(family_of(to[0]))
    connection.setblocking(False)
    try:
        sent = connection.sendto(data, MSG_FASTOPEN, to)
        assert 0 < sent <= len(data), sent
    except BlockingIOError:
        sent = 0
    poll = select.poll()
    poll.register(connection, select.POLLOUT)
    while sent < len(data):
        poll.poll()
        try:
            sent += connection.send(data[sent:])
        except BlockingIOError:
            pass
    # To shut a socket down that is not connected yet gives the connection up.
    poll.poll()
    return finish(connection, data)


def with_connect(to, data):
    connection = socket.socket(family_of(to[0]))
    connection.setsockopt(socket.IPPROTO_TCP, TCP_FASTOPEN_CONNECT, 1)
    connection.connect(to)
    connection.sendall(data)
    return finish(connection, data)


def plain(to, data):
    connection = socket.create_connection(to)
    connection.sendall(data)
    return finish(connection, data)


def call(address, port, pieces):
    to = (address, port)
    seen = []
    for way in (with_sendto, with_sendto, with_sendmsg, without_waiting, with_connect, plain):
        for size in (1, 700, 5000, 300_000)[:pieces]:
            data = bytes(at * 31 % 251 for at in range(size))
            seen.append((way.__name__, way(to, data)))
    assert not seen[0][1], "the first connection has no cookie"
    late = [name for name, early in seen[1:] if not early and name != "plain"]
    assert not late, f"without data in the SYN: {late}"
    assert not any(early for name, early in seen if name == "plain")
    print(f"{sum(early for _, early in seen)} of {len(seen)} connections began with data")


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    elif sys.argv[1] == "http":
        http(sys.argv[2], int(sys.argv[3]))
    else:
        call(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]) if len(sys.argv) > 4 else 4)
