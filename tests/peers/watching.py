"""A server whose parent polls the listener and never accepts; its child does: watching.py ADDRESS PORT WAY.

WAY is how the child comes to accept: "blocks" in accept, "polls" itself, or is "notified" by the parent, which saw a
connection, and accepts without waiting. Each connection is echoed. A child that finds nothing where the parent saw a
connection ends with status 1.
"""
import os
import select
import socket
import sys
import threading


def echo(connection):
    connection.setblocking(True)
    while data := connection.recv(65536):
        connection.sendall(data)
    connection.close()


def accept(listener):
    connection, _ = listener.accept()
    threading.Thread(target=echo, args=(connection,), daemon=True).start()


def child(listener, way, notified, answer):
    listener.setblocking(way == "blocks")
    while True:
        if way == "polls":
            select.select([listener], [], [])
            try:
                accept(listener)
            except BlockingIOError:
                pass
            continue
        if way == "notified":
            order = os.read(notified, 1)
            if not order:
                os._exit(0)
        try:
            accept(listener)
        except BlockingIOError:
            os._exit(1)
        if way == "notified":
            os.write(answer, b".")


address, port, way = sys.argv[1], int(sys.argv[2]), sys.argv[3]
listener = socket.create_server((address, port), backlog=64)
notified, notify = os.pipe()
answered, answer = os.pipe()
if os.fork() == 0:
    os.close(notify)
    child(listener, way, notified, answer)
os.close(notified)
os.close(answer)
watch = select.poll()
watch.register(listener, select.POLLIN)
while True:
    watch.poll()
    if way == "notified":
        os.write(notify, b".")
        if not os.read(answered, 1):
            sys.exit(1)
    else:
        # It sees connections until the child has them.
        select.select([], [], [], 0.002)
