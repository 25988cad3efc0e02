"""Both ends of a connection that a proxy joins: everything that can happen to one, checked at both ends.

Usage: joined.py serve PORT | call ADDRESS PORT CASE [NUMBER [FILE]]. The first line of a connection names its purpose;
what the server saw of a connection that it could not answer is asked for on another one. With FILE, nothing is asked, and
the last block of `both` is sent once that file is there.

Cases: both BYTES (each way at once), client-closes-first BYTES, server-closes-first BYTES, client-resets, server-resets,
many CONNECTIONS (short ones, from eight threads).
"""
import concurrent.futures
import hashlib
import os
import random
import socket
import struct
import sys
import threading
import time

seen = {}


def blocks(seed, total):
    """`total` bytes from a seed, in blocks."""
    dice = random.Random(seed)
    block = dice.randbytes(1 << 20)
    while total > 0:
        block = hashlib.sha256(block).digest() + block[:-32]
        yield block[:total]
        total -= len(block)


def digest_of(seed, total):
    digest = hashlib.sha256()
    for block in blocks(seed, total):
        digest.update(block)
    return digest.hexdigest()


def send(connection, seed, total):
    for block in blocks(seed, total):
        connection.sendall(block)


def send_up(connection, total, file):
    """The last block waits for the file, where there is a name of one."""
    for block in blocks("up", total):
        total -= len(block)
        while total == 0 and file and not os.path.exists(file):
            time.sleep(0.01)
        connection.sendall(block)
    connection.shutdown(socket.SHUT_WR)


def receive(connection):
    """The digest of everything up to the end of the stream."""
    digest, total = hashlib.sha256(), 0
    while data := connection.recv(1 << 18):
        digest.update(data)
        total += len(data)
    return digest.hexdigest(), total


def read_line(connection):
    line = b""
    while not line.endswith(b"\n"):
        data = connection.recv(1)
        if not data:
            break
        line += data
    return line.decode().split()


def reset(connection):
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def answer(connection):
    case, key, number = read_line(connection)
    number = int(number)
    try:
        if case == "both":
            sender = threading.Thread(target=send, args=(connection, "down", number))
            sender.start()
            found = receive(connection)
            sender.join()
            connection.shutdown(socket.SHUT_WR)
            seen[key] = found
        elif case == "client-closes-first":
            seen[key] = receive(connection)
            send(connection, "down", number)
        elif case == "server-closes-first":
            send(connection, "down", number)
            connection.shutdown(socket.SHUT_WR)
            seen[key] = receive(connection)
        elif case == "client-resets":
            seen[key] = receive(connection)
        elif case == "server-resets":
            connection.recv(5)
            return reset(connection)
        elif case == "short":
            connection.sendall(connection.recv(100))
            connection.recv(1)
        elif case == "ask":
            for _ in range(200):
                if key in seen:
                    break
                time.sleep(0.05)
            connection.sendall(f"{seen.get(key)}\n".encode())
    except OSError as error:
        seen[key] = type(error).__name__
    connection.close()


def serve(port):
    listener = socket.create_server(("0.0.0.0", port), backlog=1024)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=answer, args=(connection,), daemon=True).start()


def connect(address, case, key, number):
    connection = socket.create_connection(address)
    connection.sendall(f"{case} {key} {number}\n".encode())
    return connection


def server_saw(address, key):
    with connect(address, "ask", key, 0) as connection:
        return " ".join(read_line(connection))


def expect(what, found, wanted):
    if found != wanted:
        sys.exit(f"{what}: {found} instead of {wanted}")


def transfer(address, case, total, file):
    """Bytes both ways, in the order of the case. What the server got is asked for unless a file is waited for."""
    key = f"{case}-{os.getpid()}"
    connection = connect(address, case, key, total)
    if case == "both":
        sender = threading.Thread(target=send_up, args=(connection, total, file))
        sender.start()
        down = receive(connection)
        sender.join()
    elif case == "client-closes-first":
        send(connection, "up", total)
        connection.shutdown(socket.SHUT_WR)
        down = receive(connection)
    else:
        down = receive(connection)
        send(connection, "up", total)
        connection.shutdown(socket.SHUT_WR)
    connection.close()
    expect("from the server", down, (digest_of("down", total), total))
    if not file:
        expect("from the client", server_saw(address, key), str((digest_of("up", total), total)))
    print(f"{total / 1e6:.0f} MB each way, SHA-256 as sent")


def resets(address, case):
    key = f"{case}-{os.getpid()}"
    connection = connect(address, case, key, 0)
    if case == "client-resets":
        connection.sendall(b"x" * 100)
        time.sleep(0.3)
        reset(connection)
        expect("the server", server_saw(address, key), "ConnectionResetError")
    else:
        time.sleep(0.3)
        connection.sendall(b"hello")
        try:
            connection.recv(1)
            sys.exit("the client saw an ordinary end")
        except ConnectionResetError:
            pass
    print(f"{case}: the other end saw ECONNRESET")


def many(address, total):
    def some(number):
        for each in range(number):
            with connect(address, "short", "none", 0) as connection:
                word = f"{each}".encode()
                connection.sendall(word)
                expect("an echo", connection.recv(100), word)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(some, [total // 8] * 8))
    print(f"{total // 8 * 8} short connections")


def main():
    if sys.argv[1] == "serve":
        return serve(int(sys.argv[2]))
    address, case = (sys.argv[2], int(sys.argv[3])), sys.argv[4]
    number = int(sys.argv[5]) if len(sys.argv) > 5 else 0
    if case == "many":
        many(address, number)
    elif case.endswith("resets"):
        resets(address, case)
    else:
        transfer(address, case, number, sys.argv[6] if len(sys.argv) > 6 else None)


main()
