"""A server whose parent waits for each connection and never reads; a program that it runs does: two_waiters.py ADDRESS
PORT WAY. Both wait in epoll sets of their own.

WAY is how the program waits: "edge", "both" (for room as well), or "level". Each connection is echoed.
"""
import select
import socket
import subprocess
import sys
import threading

EDGES = select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP | select.EPOLLET
WAYS = {"edge": select.EPOLLIN | select.EPOLLET, "both": EDGES, "level": select.EPOLLIN}


def echo(fd, way):
    connection = socket.socket(fileno=fd)
    connection.setblocking(False)
    events = select.epoll()
    events.register(connection, WAYS[way])
    while True:
        try:
            data = connection.recv(65536)
            if not data:
                return
            connection.sendall(data)
        except BlockingIOError:
            events.poll()


def wait(events):
    while True:
        events.poll()


def serve(address, port, way):
    listener = socket.create_server((address, int(port)))
    events = select.epoll()
    threading.Thread(target=wait, args=(events,), daemon=True).start()
    while True:
        connection, _ = listener.accept()
        connection.setblocking(False)
        events.register(connection, EDGES)
        command = [sys.executable, __file__, str(connection.fileno()), way]
        program = subprocess.Popen(command, pass_fds=[connection.fileno()])
        if program.wait() != 0:
            sys.exit("the program that echoes failed")
        connection.close()


if len(sys.argv) == 3:
    echo(int(sys.argv[1]), sys.argv[2])
else:
    serve(*sys.argv[1:])
