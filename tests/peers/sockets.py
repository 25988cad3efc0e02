"""What a program sees of errors, and of sockets that are not accelerated.

Usage: sockets.py refused ADDRESS PORT | unreachable ADDRESS | wait ADDRESS PORT | mixed
Prints what happened; exit status 1 if it was not what must happen.
"""
import errno
import os
import select
import socket
import sys


def refused(address, port):
    with socket.socket() as connection:
        code = connection.connect_ex((address, int(port)))
    if code != errno.ECONNREFUSED:
        sys.exit(f"connect: {os.strerror(code)} instead of a refusal")
    print("refused")


def unreachable(address):
    with socket.socket() as connection:
        code = connection.connect_ex((address, 9))
    if code not in (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ETIMEDOUT):
        sys.exit(f"connect: {os.strerror(code)}")
    print(os.strerror(code).lower())


def wait(address, port):
    """Connects, prints that, and waits for data that never comes."""
    with socket.create_connection((address, int(port))) as connection:
        connection.sendall(b"hello")
        print("connected", flush=True)
        try:
            while connection.recv(1000):
                pass
            print("end")
        except OSError as error:
            print(errno.errorcode[error.errno])


def mixed():
    """Pipes, UDP, UNIX and loopback TCP sockets in one epoll set: the kernel's, whatever else is in the process."""
    end, other = os.pipe()
    left, right = socket.socketpair()
    datagram = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagram.bind(("127.0.0.1", 0))
    listener = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(listener.getsockname())
    server, _ = listener.accept()
    files = {end: "pipe", right.fileno(): "unix", datagram.fileno(): "udp", server.fileno(): "tcp"}
    poller = select.epoll()
    for file in files:
        poller.register(file, select.EPOLLIN)
    os.write(other, b"x")
    left.sendall(b"x")
    datagram.sendto(b"x", datagram.getsockname())
    client.sendall(b"x")
    seen = set()
    while len(seen) < len(files):
        ready = poller.poll(5)
        if not ready:
            sys.exit(f"only {seen} became ready")
        seen |= {files[file] for file, _ in ready}
    print(" ".join(sorted(seen)))


{"refused": refused, "unreachable": unreachable, "wait": wait, "mixed": mixed}[sys.argv[1]](*sys.argv[2:])
