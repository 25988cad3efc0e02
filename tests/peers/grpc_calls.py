"""A gRPC server, and a client that calls it in every way: one answer, a dialogue, a long message, many channels.

usage: grpc_calls.py serve PORT | call ADDRESS PORT
"""
import concurrent.futures
import queue
import sys

import grpc

CALLS, TURNS, CHANNELS = 400, 200, 32
LONG = bytes(range(256)) * 78125
# Channels of one process share connections unless an option forbids it.
OPTIONS = [
    ("grpc.max_receive_message_length", 1 << 26),
    ("grpc.max_send_message_length", 1 << 26),
    ("grpc.use_local_subchannel_pool", 1),
]


class Echo(grpc.GenericRpcHandler):
    def service(self, details):
        if details.method == "/test/once":
            return grpc.unary_unary_rpc_method_handler(lambda message, context: message)
        if details.method == "/test/dialogue":
            return grpc.stream_stream_rpc_method_handler(lambda messages, context: messages)
        return None


def serve(port):
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(16), options=OPTIONS)
    server.add_generic_rpc_handlers((Echo(),))
    if server.add_insecure_port(f"[::]:{port}") == 0:
        sys.exit("the port is in use")
    server.start()
    server.wait_for_termination()


def once(channel, message):
    if channel.unary_unary("/test/once")(message, timeout=30, wait_for_ready=True) != message:
        sys.exit("another message came back")


def dialogue(channel):
    """Each message is sent when the last one's answer is there."""
    asked = queue.Queue()
    answers = channel.stream_stream("/test/dialogue")(iter(asked.get, None), timeout=30)
    for number in range(TURNS):
        asked.put(b"%d" % number)
        if next(answers) != b"%d" % number:
            sys.exit("another answer came")
    asked.put(None)
    if list(answers):
        sys.exit("more answers than questions")


def call(target):
    with grpc.insecure_channel(target, OPTIONS) as channel:
        for number in range(CALLS):
            once(channel, b"%100d" % number)
        dialogue(channel)
        once(channel, LONG)

    def on_its_own_channel(number):
        with grpc.insecure_channel(target, OPTIONS) as channel:
            for number_of_call in range(10):
                once(channel, b"%100d" % (number * number_of_call))

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(on_its_own_channel, range(CHANNELS)))
    print(f"{CALLS} calls, {TURNS} turns of a dialogue, {len(LONG) // 1000000} MB at once, {CHANNELS} channels")


if sys.argv[1] == "serve":
    serve(sys.argv[2])
else:
    call(f"{sys.argv[2]}:{sys.argv[3]}")
