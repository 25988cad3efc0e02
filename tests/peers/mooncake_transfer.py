"""Mooncake's transfer engine, unmodified (docs/VERBS.md): one process' memory is written and read by another one.

serve                       offers memory until it is ended; prints "at PEER ADDRESS"
call PEER ADDRESS [ROUNDS]  writes there, reads it back, compares
"""
import ctypes
import os
import signal
import sys
import time

from mooncake.engine import TransferEngine

SIZE = 16 << 20


def start():
    engine = TransferEngine()
    # The two processes find each other over the machine's own loopback, and exchange data over the device.
    if engine.initialize("127.0.0.1", "P2PHANDSHAKE", "rdma", "") != 0:
        sys.exit("mooncake: no engine")
    return engine


def serve():
    engine = start()
    place = engine.allocate_managed_buffer(SIZE)
    print("at", f"127.0.0.1:{engine.get_rpc_port()}", place, flush=True)
    signal.pause()


def call(peer, there, rounds):
    engine = start()
    here = engine.allocate_managed_buffer(SIZE)
    data = os.urandom(SIZE)
    ctypes.memmove(here, data, SIZE)
    for _ in range(rounds):
        begin = time.monotonic()
        if engine.transfer_sync_write(peer, here, there, SIZE) != 0:
            sys.exit("mooncake: the write failed")
        print(f"written: {SIZE / (time.monotonic() - begin) / 1e9:.2f} GB/s")
    ctypes.memset(here, 0, SIZE)
    if engine.transfer_sync_read(peer, here, there, SIZE) != 0:
        sys.exit("mooncake: the read failed")
    if ctypes.string_at(here, SIZE) != data:
        sys.exit("mooncake: the bytes differ")
    print("the same bytes came back")


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve()
    else:
        call(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]) if len(sys.argv) > 4 else 4)
