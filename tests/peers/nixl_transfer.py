"""NIXL, unmodified (docs/VERBS.md): one process' memory is written and read by another one, over UCX.

serve                     offers memory until it is ended; prints "at AGENT MEMORY"
call AGENT MEMORY [ROUNDS] writes there, reads it back, compares
"""
import base64
import signal
import sys
import time

import numpy
from nixl_cu12._api import nixl_agent, nixl_agent_config

SIZE = 16 << 20


def start(name):
    agent = nixl_agent(name, nixl_agent_config(backends=["UCX"]))
    memory = numpy.zeros(SIZE, numpy.uint8)
    agent.register_memory([(memory.ctypes.data, SIZE, 0, "")], "DRAM")
    return agent, memory, agent.get_xfer_descs([(memory.ctypes.data, SIZE, 0)], "DRAM")


def serve():
    agent, memory, here = start("server")
    metadata = [agent.get_agent_metadata(), agent.get_serialized_descs(here)]
    print("at", *(base64.b64encode(part).decode() for part in metadata), flush=True)
    signal.pause()
    del memory


def call(peer, place, rounds):
    agent, memory, here = start("client")
    data = numpy.random.default_rng().integers(0, 256, SIZE, dtype=numpy.uint8)
    memory[:] = data
    name = agent.add_remote_agent(base64.b64decode(peer))
    there = agent.deserialize_descs(base64.b64decode(place))

    def move(operation):
        handle = agent.initialize_xfer(operation, here, there, name)
        begin = time.monotonic()
        state = agent.transfer(handle)
        while state == "PROC":
            state = agent.check_xfer_state(handle)
        if state != "DONE":
            sys.exit(f"nixl: {operation} ended with {state}")
        print(f"{operation}: {SIZE / (time.monotonic() - begin) / 1e9:.2f} GB/s")
        agent.release_xfer_handle(handle)

    for _ in range(rounds):
        move("WRITE")
    memory[:] = 0
    move("READ")
    if not (memory == data).all():
        sys.exit("nixl: the bytes differ")
    print("the same bytes came back")


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve()
    else:
        call(sys.argv[2], sys.argv[3], int(sys.argv[4]) if len(sys.argv) > 4 else 4)
