"""A client of an AMQP broker: confirmed messages one by one, many without, a long one, several connections at once.

usage: amqp.py ADDRESS PORT
"""
import concurrent.futures
import sys

import pika

CONFIRMED, MANY, CONNECTIONS = 200, 2000, 8
LONG = bytes(range(256)) * 20000


def open_queue(parameters):
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    return connection, channel, channel.queue_declare("", exclusive=True).method.queue


def publish(channel, name, body):
    channel.basic_publish("", name, body)


def get(channel, name, wanted):
    found = channel.basic_get(name, auto_ack=True)[2]
    if found != wanted:
        sys.exit("another message came, or none")


def one_by_one(parameters):
    connection, channel, name = open_queue(parameters)
    channel.confirm_delivery()
    for number in range(CONFIRMED):
        publish(channel, name, b"%1000d" % number)
        get(channel, name, b"%1000d" % number)
    publish(channel, name, LONG)
    get(channel, name, LONG)
    connection.close()


def many(parameters):
    connection, channel, name = open_queue(parameters)
    for number in range(MANY):
        publish(channel, name, b"%100d" % number)
    for number, (_, _, body) in zip(range(MANY), channel.consume(name, auto_ack=True, inactivity_timeout=30)):
        if body != b"%100d" % number:
            sys.exit("a message is missing")
    channel.cancel()
    connection.close()


place = pika.ConnectionParameters(sys.argv[1], int(sys.argv[2]), socket_timeout=30, blocked_connection_timeout=30)
one_by_one(place)
with concurrent.futures.ThreadPoolExecutor(CONNECTIONS) as pool:
    list(pool.map(many, [place] * CONNECTIONS))
print(f"{CONFIRMED} confirmed messages, one of {len(LONG) // 1000000} MB, {CONNECTIONS} x {MANY} consumed in order")
