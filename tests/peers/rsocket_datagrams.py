"""Datagrams by the C library's calls: a server that answers with the bytes in reverse, and a client that compares them.
Arguments: serve ADDRESS PORT, or ask ADDRESS PORT."""
import select
import socket
import sys

ROUNDS = 300


def serve(address):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.bind(address)
        data = b""
        while data != b"end":
            data, sender = own.recvfrom(2000)
            own.sendto(data[::-1], sender)


def ask(address):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.connect(address)
        assert own.getpeername() == address
        for round_number in range(ROUNDS):
            data = bytes(round_number * place & 255 for place in range(round_number * 3))
            own.send(data)
            assert select.select([own], [], [], 5)[0], f"no answer to datagram {round_number}"
            assert own.recv(2000) == data[::-1], f"datagram {round_number}"
        own.send(b"end")
        assert own.recv(2000) == b"dne"
    print(f"{ROUNDS} datagrams")


{"serve": serve, "ask": ask}[sys.argv[1]]((sys.argv[2], int(sys.argv[3])))
