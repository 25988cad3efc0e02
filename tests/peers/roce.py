"""Sends false RoCEv2 frames to queue pairs of a host, from the kernel's side of its link, and checks the answers.

Usage: roce.py DEVICE HOST_ADDRESS OWN_ADDRESS CLOSED_PORT SEED PSN ADDRESS KEY LENGTH OWN_QP QP...
The queue pairs expect PSN first. The first one gets frames that must have no effect, and in the end a right WRITE of
its last byte; each of the others gets one request that must be refused. Exit status 1 where an answer is wrong.
"""
import random
import socket
import struct
import sys
import time
import zlib

from neighbour import hardware_address

device, host, own = sys.argv[1:4]
closed_port, seed, first, address, key, length, own_qp = map(int, sys.argv[4:11])
queue_pairs = list(map(int, sys.argv[11:]))
dice = random.Random(seed)
PORT = 4791
SEND, WRITE_FIRST, WRITE_MIDDLE, WRITE_LAST, WRITE, READ = 0x04, 0x06, 0x07, 0x08, 0x0A, 0x0C
READ_RESPONSE, ACKNOWLEDGE, ATOMIC_ACKNOWLEDGE, COMPARE, ADD = 0x10, 0x11, 0x12, 0x13, 0x14
DATAGRAM, EVERYBODY, GROUP, to_group = 0x64, 0xFFFFFF, "239.7.1.74", bytes.fromhex("01005e07014a")
# AETH syndromes (IBTA 1.3, table 43 and 44).
SEQUENCE_ERROR, INVALID, ACCESS = 0x60, 0x61, 0x62


raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0003))
# SO_RCVBUFFORCE, which Python does not name: no answer is lost where this process gets no core while frames are
# answered.
raw.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)
raw.bind((device, 0))
to, mine = hardware_address(host, closed_port), raw.getsockname()[4]


def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def invariant(ip, udp, bth, rest):
    """ICRC (IBTA annex A17.3.3): what changes on the way counts as ones."""
    ip = ip[:1] + b"\xff" + ip[2:8] + b"\xff" + ip[9:10] + b"\xff\xff" + ip[12:]
    bth = bth[:4] + b"\xff" + bth[5:]
    return struct.pack("<I", zlib.crc32(b"\xff" * 8 + ip + udp[:6] + b"\xff\xff" + bth + rest))


def packet(qp, opcode, psn, rest=b"", asks=True, source=None, broken=False, version=0, partition=0xFFFF, group=None):
    pad = -len(rest) % 4
    bth = struct.pack("!BBH", opcode, pad << 4 | version, partition)
    bth += struct.pack("!II", qp, (asks << 31) | psn & 0xFFFFFF)
    rest += bytes(pad)
    size = 20 + 8 + len(bth) + len(rest) + 4
    ip = struct.pack("!BBHHHBBH", 0x45, 0, size, 0, 0x4000, 64, 17, 0)
    ip += socket.inet_aton(source or own) + socket.inet_aton(group or host)
    ip = ip[:10] + struct.pack("!H", checksum(ip)) + ip[12:]
    udp = struct.pack("!HHHH", 0xC123, PORT, size - 20, 0)
    icrc = invariant(ip, udp, bth, rest)
    if broken:
        icrc = bytes([icrc[0] ^ 1 << dice.randrange(8)]) + icrc[1:]
    return to + mine + b"\x08\x00" + ip + udp + bth + rest + icrc


def remote(at, size, rkey=None):
    return struct.pack("!QII", (address + at) % 2**64, key if rkey is None else rkey, size)


def atomic(at, swap, compare):
    return struct.pack("!QIQQ", address + at, key, swap, compare)


def answers(seconds):
    """Opcode, PSN, and what follows the BTH, of the frames that the host sends to our queue pair."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        raw.settimeout(left)
        try:
            frame = raw.recv(65536)
        except TimeoutError:
            return
        if frame[12:14] == b"\x08\x00" and frame[23] == 17 and frame[36:38] == struct.pack("!H", PORT):
            if frame[:6] == mine:
                ip, udp, bth, rest = frame[14:34], frame[34:42], frame[42:54], frame[54:-4]
                if frame[-4:] != invariant(ip, udp, bth, rest):
                    sys.exit("an answer's ICRC is wrong")
                if int.from_bytes(bth[5:8], "big") == own_qp:
                    yield bth[0], int.from_bytes(bth[9:12], "big"), rest


def ask(what, wanted, *request):
    """Sends a request, again each second: a device's queue may have been full of the frames before it."""
    for turn in range(60):
        send(*request)
        if any(wanted(*answer) for answer in answers(1)):
            return
    sys.exit(f"no answer to {what}")


sent = 0


def send(*arguments, **named):
    global sent
    sent += 1
    raw.send(packet(*arguments, **named))


quiet, refused = queue_pairs[0], queue_pairs[1:]
data = bytes(dice.randrange(256) for _ in range(64))

# Without any effect, in any number and order: the ICRC, the queue pair, the sender, the version, the length is wrong;
# the number is far ahead or far behind; answers to what nobody asked.
for turn in range(300):
    send(quiet, WRITE, first, remote(0, 64) + data, broken=True)
    send(quiet ^ dice.randrange(1, 1 << 24), WRITE, first, remote(0, 64) + data)
    send(quiet, WRITE, first, remote(0, 64) + data, source="10.78.0.77")
    send(quiet, WRITE, first, remote(0, 64) + data, version=dice.randrange(1, 16))
    send(quiet, WRITE, first + 1 + dice.randrange(1 << 22), remote(0, 64) + data, asks=False)
    send(quiet, WRITE, first - 1 - dice.randrange(1 << 22), remote(0, 64) + data, asks=False)
    for opcode in (READ_RESPONSE, ACKNOWLEDGE, ATOMIC_ACKNOWLEDGE):
        syndrome = dice.choice((0, 0x1F, SEQUENCE_ERROR, INVALID, ACCESS, 0x20 | dice.randrange(32)))
        rest = struct.pack("!I", syndrome << 24 | dice.randrange(1 << 24)) + data[: dice.choice((0, 8, 64))]
        send(quiet, opcode, dice.choice((first, first - 1, first + 5, dice.randrange(1 << 24))), rest)
    send(quiet, dice.choice((0x3F, 0x64, 0x65, 0x81, 0xFF)), first, data)
    # A group's address needs the group's queue pair and hardware address, and members: here one of the three lacks.
    datagram = struct.pack("!II", 0x1234567, own_qp) + data
    send(dice.choice((quiet, EVERYBODY)), DATAGRAM, first, datagram, group=GROUP)
    raw.send(to_group + packet(EVERYBODY, DATAGRAM, first, datagram, group=GROUP)[6:])
    raw.send(to_group + packet(quiet, WRITE, first, remote(0, 64) + data, group=GROUP)[6:])
    sent += 2
    whole = bytearray(packet(quiet, WRITE, first, remote(0, 64) + data))
    raw.send(whole[: dice.randrange(42, len(whole))])
    whole[dice.randrange(42, len(whole))] ^= 1 << dice.randrange(8)
    # What the ICRC does not cover (the BTH's byte of reserved bits) may change on the way.
    whole[46] = 0
    if bytes(whole) != packet(quiet, WRITE, first, remote(0, 64) + data):
        raw.send(bytes(whole))
    sent += 2

# Each is refused, and ends its queue pair.
requests = [
    ("a wrong key", WRITE, remote(0, 64, key ^ 0x80000000) + data, ACCESS),
    ("a WRITE beyond", WRITE, remote(length - 63, 64) + data, ACCESS),
    ("a WRITE before", WRITE, remote(-1, 64) + data, ACCESS),
    ("a WRITE at the end of all addresses", WRITE, remote(2**64 - address - 8, 64) + data, ACCESS),
    ("a READ beyond", READ, remote(0, length + 1), ACCESS),
    ("an atomic on an odd address", ADD, atomic(4, 1, 0), INVALID),
    ("a WRITE longer than its header has", WRITE, remote(0, 60) + data, INVALID),
    ("the middle of nothing", WRITE_MIDDLE, data, INVALID),
    ("a READ of more than any message", READ, remote(0, 2**32 - 1), None),
]
for qp, (what, opcode, rest, syndrome) in zip(refused, requests, strict=True):
    refusal = (syndrome,) if syndrome else (ACCESS, INVALID)
    refused_so = lambda code, psn, rest: code == ACKNOWLEDGE and psn == first and rest[0] in refusal
    ask(what, refused_so, qp, opcode, first, rest)

# It has survived, and acknowledges.
acknowledged = lambda code, psn, rest: code == ACKNOWLEDGE and psn == first and rest[0] >> 5 == 0
ask("the right WRITE", acknowledged, quiet, WRITE, first, remote(length - 1, 1) + b"\x01")
print(f"{sent} frames, {len(refused)} requests refused, the last one right")
