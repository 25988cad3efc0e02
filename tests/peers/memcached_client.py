"""Stores values of many sizes in memcached over several connections at once and reads each back over another one.

Usage: memcached_client.py ADDRESS PORT CONNECTIONS ITEMS. Prints operations per second; exit status 1 on any
difference.
"""
import socket
import sys
import threading
import time

address, port, connections, items = sys.argv[1], *map(int, sys.argv[2:5])
sizes = [1, 32, 100, 1447, 1448, 1449, 4096, 20000, 100000, 900000]
failures = []


def value(item):
    size = sizes[item % len(sizes)] if item % 50 == item % len(sizes) else sizes[item % 6]
    return (b"%08d" % item * (size // 8 + 1))[:size]


def store(stream, item):
    data = value(item)
    stream.write(b"set key%d 0 0 %d\r\n%s\r\n" % (item, len(data), data))
    stream.flush()
    return stream.readline() == b"STORED\r\n"


def fetch(stream, item):
    data = value(item)
    stream.write(b"get key%d\r\n" % item)
    stream.flush()
    if stream.readline() != b"VALUE key%d 0 %d\r\n" % (item, len(data)):
        return False
    return stream.read(len(data) + 2) == data + b"\r\n" and stream.readline() == b"END\r\n"


def work(number, operation, shift):
    try:
        with socket.create_connection((address, port)) as connection, connection.makefile("rwb") as stream:
            for item in range((number + shift) % connections, items, connections):
                if not operation(stream, item):
                    failures.append(f"{operation.__name__} of item {item} went wrong")
                    return
    except OSError as error:
        failures.append(f"connection {number}: {error}")


def all_at_once(operation, shift):
    threads = [threading.Thread(target=work, args=(n, operation, shift)) for n in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


begin = time.monotonic()
all_at_once(store, 0)
all_at_once(fetch, 1)
elapsed = time.monotonic() - begin
with socket.create_connection((address, port)) as connection, connection.makefile("rwb") as stream:
    stream.write(b"stats\r\n")
    stream.flush()
    stats = dict(line.split()[1:3] for line in iter(stream.readline, b"END\r\n"))
if not failures and (int(stats[b"cmd_set"]), int(stats[b"get_hits"])) != (items, items):
    failures.append(f"the server counted {stats[b'cmd_set']} stores and {stats[b'get_hits']} hits, not {items}")
print("\n".join(failures[:5]) if failures else f"{2 * items / elapsed:.0f} operations/s, {items} items")
sys.exit(bool(failures))
