"""A server that accepts in one process and answers in others: passing.py ADDRESS PORT WORKERS.

Connections go to the workers over UNIX sockets, as multiprocessing passes them; each worker echoes.
"""
import multiprocessing
import selectors
import socket
import sys
from multiprocessing import reduction


def work(pipe):
    selector = selectors.DefaultSelector()
    selector.register(pipe, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fileobj is pipe:
                connection = socket.socket(fileno=reduction.recv_handle(pipe))
                selector.register(connection, selectors.EVENT_READ)
                continue
            data = key.fileobj.recv(65536)
            if data:
                key.fileobj.sendall(data)
            else:
                selector.unregister(key.fileobj)
                key.fileobj.close()


def main():
    address, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    context = multiprocessing.get_context("spawn")
    workers = []
    for _ in range(count):
        here, there = context.Pipe()
        worker = context.Process(target=work, args=(there,), daemon=True)
        worker.start()
        there.close()
        workers.append((here, worker))
    listener = socket.create_server((address, port), backlog=64)
    turn = 0
    while True:
        connection, _ = listener.accept()
        here, worker = workers[turn % count]
        turn += 1
        reduction.send_handle(here, connection.fileno(), worker.pid)
        connection.close()


if __name__ == "__main__":
    main()
