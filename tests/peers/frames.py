"""Sends malformed, hostile and random frames to a host, from the kernel's side of its link.

Usage: frames.py DEVICE HOST_ADDRESS OWN_ADDRESS OPEN_PORT CLOSED_PORT SEED
Exit status 1 if the host does not answer as RFC 9293 asks: RST for a SYN to a closed port, RST for a segment of no
connection, silence for everything that is malformed.
"""
import random
import socket
import struct
import sys
import time

from neighbour import hardware_address

device, host, own = sys.argv[1:4]
open_port, closed_port, seed = map(int, sys.argv[4:7])
dice = random.Random(seed)
FIN, SYN, RST, PSH, ACK, URG = 1, 2, 4, 8, 16, 32


def checksum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def addresses():
    return socket.inet_aton(own) + socket.inet_aton(host)


def ipv4(payload, protocol=6, first=0x45, total=None, fragment=0x4000, broken=False, tail=None):
    total = 20 + len(payload) if total is None else total
    header = struct.pack("!BBHHHBBH", first, 0, total, 1, fragment, 64, protocol, 0) + (tail or addresses())
    found = checksum(header) ^ (0x5555 if broken else 0)
    return header[:10] + struct.pack("!H", found) + header[12:] + payload


def tcp(
    source, target, flags, sequence=1000, acknowledged=0, options=b"", data=b"", offset=None, broken=False, tail=None
):
    offset = (20 + len(options) + 3) // 4 if offset is None else offset
    options += b"\0" * (-len(options) % 4)
    header = struct.pack("!HHIIBBHHH", source, target, sequence, acknowledged, offset << 4, flags, 65535, 0, 0)
    segment = header + options + data
    found = checksum((tail or addresses()) + struct.pack("!BBH", 0, 6, len(segment)) + segment) ^ (0x5555 if broken else 0)
    return segment[:16] + struct.pack("!H", found) + segment[18:]


def icmp(kind, code, rest, payload):
    message = struct.pack("!BBH", kind, code, 0) + rest + payload
    return message[:2] + struct.pack("!H", checksum(message)) + message[4:]


raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
raw.bind((device, 0))
to, mine = hardware_address(host, closed_port), raw.getsockname()[4]


def send(packet, kind=0x0800, target=None):
    raw.send((target or to) + mine + struct.pack("!H", kind) + packet)


def quoted(port):
    return ipv4(tcp(closed_port, port, ACK)[:8], tail=socket.inet_aton(host) + socket.inet_aton(own))


def answered_by_rst(segment, source):
    """Sends a segment from port `source` and waits for an RST to it; the kernel here does not use that port."""
    raw.settimeout(0.2)
    end = time.monotonic() + 60
    while time.monotonic() < end:
        # It is sent again after a second: a host that gets no core for a while loses frames.
        send(ipv4(segment))
        again = time.monotonic() + 1
        while time.monotonic() < again:
            try:
                frame = raw.recv(2000)
            except TimeoutError:
                break
            if len(frame) >= 54 and frame[23] == 6 and frame[26:30] == socket.inet_aton(host):
                ports, flags = struct.unpack("!HH", frame[34:38]), frame[47]
                if ports[1] == source and flags & RST:
                    return True
    return False


def syn_between(source, target):
    """A whole packet, right in everything but its addresses."""
    return ipv4(tcp(40000, open_port, SYN, tail=source + target), tail=source + target)


host_bytes, own_bytes = socket.inet_aton(host), socket.inet_aton(own)
good = tcp(40000, open_port, SYN, options=b"\2\4\5\xb4")
malformed = {
    "runt": lambda: send(b""),
    "unknown kind of frame": lambda: send(b"x" * 50, kind=0x88B5),
    "for another station": lambda: send(ipv4(good), target=b"\2\1\1\1\1\1"),
    "IPv6": lambda: send(b"\x60" + b"\0" * 60, kind=0x86DD),
    "header cut": lambda: send(ipv4(good)[:15]),
    "wrong version": lambda: send(ipv4(good, first=0x65)),
    "header length 4": lambda: send(ipv4(good, first=0x44)),
    "header length 15": lambda: send(ipv4(b"", first=0x4F)),
    "total length too long": lambda: send(ipv4(good, total=1400)),
    "total length too short": lambda: send(ipv4(good, total=10)),
    "wrong IPv4 checksum": lambda: send(ipv4(good, broken=True)),
    "not its address": lambda: send(syn_between(own_bytes, b"\x0a\x4e\0\xfe")),
    "source is multicast": lambda: send(syn_between(b"\xe0\0\0\1", host_bytes)),
    "source is itself": lambda: send(syn_between(host_bytes, host_bytes)),
    "source is everybody": lambda: send(syn_between(b"\xff" * 4, host_bytes)),
    "fragment": lambda: send(ipv4(good, fragment=0x2000)),
    "last fragment": lambda: send(ipv4(good, fragment=0x0010)),
    "unknown protocol": lambda: send(ipv4(b"?" * 40, protocol=99)),
    "TCP header cut": lambda: send(ipv4(good[:13])),
    "data offset 4": lambda: send(ipv4(tcp(40000, open_port, SYN, offset=4))),
    "data offset 15": lambda: send(ipv4(tcp(40000, open_port, SYN, offset=15))),
    "wrong TCP checksum": lambda: send(ipv4(tcp(40000, open_port, SYN, broken=True))),
    "option of length 0": lambda: send(ipv4(tcp(40001, open_port, SYN, options=b"\2\0\5\xb4"))),
    "option of length 1": lambda: send(ipv4(tcp(40002, open_port, SYN, options=b"\3\1\7\0"))),
    "option beyond the header": lambda: send(ipv4(tcp(40003, open_port, SYN, options=b"\x08\x28\0\0"))),
    "MSS of 0": lambda: send(ipv4(tcp(40004, open_port, SYN, options=b"\2\4\0\0"))),
    "window scale 255": lambda: send(ipv4(tcp(40005, open_port, SYN, options=b"\3\3\xff\1"))),
    "no flags": lambda: send(ipv4(tcp(40006, open_port, 0))),
    "all flags": lambda: send(ipv4(tcp(40007, open_port, FIN | SYN | RST | PSH | ACK | URG))),
    "SYN and FIN": lambda: send(ipv4(tcp(40008, open_port, SYN | FIN))),
    "port 0": lambda: send(ipv4(tcp(0, 0, SYN))),
    "ICMP cut": lambda: send(ipv4(b"\3\4", protocol=1)),
    "unreachable, for no connection": lambda: send(ipv4(icmp(3, 1, b"\0" * 4, quoted(9)), protocol=1)),
    "too big, for no connection": lambda: send(ipv4(icmp(3, 4, b"\0\0\0\x44", quoted(9)), protocol=1)),
    "too big, quote cut": lambda: send(ipv4(icmp(3, 4, b"\0\0\0\x44", quoted(9)[:17]), protocol=1)),
    "ARP cut": lambda: send(b"\0\1\x08\0\6\4\0\1", kind=0x0806),
    "ARP for token ring": lambda: send(b"\0\6\x08\0\6\4\0\1" + b"\1" * 20, kind=0x0806),
    "ARP claims its address": lambda: send(
        b"\0\1\x08\0\6\4\0\2" + mine + host_bytes + to + host_bytes, kind=0x0806
    ),
}
for _ in range(20):
    for throw in malformed.values():
        throw()
for _ in range(3000):
    send(dice.randbytes(dice.randrange(1400)), kind=dice.choice([0x0800, 0x0806, 0x86DD, dice.randrange(65536)]))
for _ in range(3000):
    frame = bytearray(ipv4(tcp(dice.randrange(65536), open_port, dice.randrange(64), options=dice.randbytes(20))))
    for _ in range(dice.randrange(1, 4)):
        frame[dice.randrange(len(frame))] = dice.randrange(256)
    send(bytes(frame))
if not answered_by_rst(tcp(45001, closed_port, SYN), 45001):
    sys.exit("no RST for a SYN to a closed port")
if not answered_by_rst(tcp(45002, open_port, ACK, acknowledged=77), 45002):
    sys.exit("no RST for a segment of no connection")
print(f"{20 * len(malformed)} malformed and 6000 random frames; RST where the RFC asks for it")
