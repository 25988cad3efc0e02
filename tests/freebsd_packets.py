"""FreeBSD's tcp-testsuite, written as google's packetdrill reads it (docs/SCRIPTS.md, "FreeBSD's scripts").

The suite is for a packetdrill of its own, which has no table of callbacks. Each rule here is for one of three: another
name, what FreeBSD's host has otherwise than Linux' and the RFCs leave open, or what google's runner cannot do."""
import re

# Folders of Fast Open as FreeBSD has it, and of TCP in UDP.
OTHERS = {"fast-open", "tcp-over-udp"}
# FreeBSD's defaults, where a script does not say otherwise.
FLAGS = {"rx_bytes": "65536", "min_rto_ms": "200", "congestion": "cubic", "ecn": "accept"}
# FreeBSD rounds a receive buffer of 65,536 bytes up to 45 segments of 1460, and takes bytes up to the end of that.
# OpenTOE takes bytes up to the end of the window in the header.
ROUNDED, BUFFER, WINDOW = 65_700, 65_536, 65_535
# TCP_INFO's states: Linux' numbers are FreeBSD's names in this order.
STATES = """ESTABLISHED SYN_SENT SYN_RECEIVED FIN_WAIT_1 FIN_WAIT_2 TIME_WAIT
    CLOSED CLOSE_WAIT LAST_ACK LISTEN CLOSING""".split()
STATES = {name: str(number) for number, name in enumerate(STATES, 1)}
# What google's runner has no name for.
CODES = {"ttl_exceeded_in_transit": "code_0", "frag_reass_exceeded": "code_1"}

BRANCH = re.compile(r"^#ifdef\s+(\w+)[ \t]*\n(.*?)^#endif[^\n]*\n", re.MULTILINE | re.DOTALL)
SETTING = re.compile(r"sysctl -w ([\w.]+)=(\d+)")
# When something happens, in which direction a packet goes, and the packet.
PACKET = re.compile(r"(\s*(?:\*|\+?[\d.]+)?\s*)([<>])(.*)")
NUMBERS = re.compile(r"\b(\d+):(\d+)(\(\d+\))")
OPTIONS = re.compile(r"<(?!\.\.\.)([^<>]*)>")
CALL_OF_SOCKET = re.compile(r".*\b(socket|fcntl|[gs]etsockopt|bind|close)\(")


def is_of_suite(script):
    """Whether a script is for TCP over IPv4, with what hosts of OpenTOE have."""
    return "ipv6" not in script.name and not OTHERS & set(script.parts)


def settings(text):
    """The library's flags for what a script sets before its first socket, and for its link."""
    flags = {}
    for name, value in SETTING.findall(text.partition("socket(")[0]):
        match name.removeprefix("net.inet.tcp."):
            case "rfc1323":
                flags["timestamps"] = str(value != "0").lower()
            case "sack.enable":
                flags["sack"] = str(value != "0").lower()
            case "ecn.enable":
                # 2, the default, takes ECN where the peer offers it.
                flags["ecn"] = {"1": "true", "2": "accept"}.get(value, "false")
            case "recvspace":
                flags["rx_bytes"] = value
    mtu = re.search(r"^--mtu=(\d+)", text, re.MULTILINE)
    return flags | ({"mtu": mtu.group(1)} if mtu else {})


def ordered(options, engine):
    """Options of a host's segment in Linux' order, which is OpenTOE's. The shift of its window is its own."""
    words = [" ".join(word.split()) for word in options.split(",")]
    have = {word.split()[0]: word for word in words if word not in ("nop", "eol")}
    if "md5" in have:
        return options
    if engine == "laminar":
        # It has none.
        have.pop("TS", None)
    order = [kind for kind in ("mss", "sackOK", "TS", "wscale", "sack") if kind in have]
    # Each stands where a word of four bytes begins.
    padding = {"mss": [], "sackOK": [] if "TS" in order else ["nop", "nop"], "wscale": ["nop"], "sack": ["nop", "nop"]}
    padding["TS"] = [] if "sackOK" in order else ["nop", "nop"]
    # With replicated modules, buffers do not grow.
    have["wscale"] = f"wscale {1 if engine == 'threads' else 7}"
    return ",".join(word for kind in order for word in (*padding[kind], have[kind]))


class Translation:
    """What a script has said so far."""

    def __init__(self, engine):
        self.engine = engine
        # What the host has acknowledged, and the number of its FIN.
        self.acknowledged, self.fin = 0, None

    def received(self, packet):
        """A packet of the peer's. Numbers at the end of FreeBSD's window are moved to the end of ours."""
        for name, code in CODES.items():
            packet = packet.replace(name, code)
        moved = ROUNDED - WINDOW + self.acknowledged - 1

        def move(found):
            left, right = int(found[1]), int(found[2])
            if left < ROUNDED:
                return found[0]
            return f"{left - moved}:{right - moved}{found[3]}"

        return NUMBERS.sub(move, packet, count=1)

    def sent(self, when, packet):
        """A packet of the host's. Its window is compared where it is 0 only."""
        packet = re.sub(r"\bwin\s+[1-9]\d*", "", packet)
        packet = OPTIONS.sub(lambda found: f"<{ordered(found[1], self.engine)}>", packet)
        found = re.match(r"\s*([A-Z]*)\.\s*(\d+):\d+\(0\)\s*ack\s+(\d+)", packet)
        if not found:
            return when, packet
        acknowledged, first = self.acknowledged, found[2]
        self.acknowledged = int(found[3])
        if found[1] == "F" and first == self.fin and acknowledged < self.acknowledged:
            # Both close at once: FreeBSD sends its FIN again with the acknowledgement of the peer's. RFC 9293 figure 13
            # and Linux acknowledge.
            after = int(first) + 1
            packet = packet.replace(f"F. {first}:{first}(0)", f". {after}:{after}(0)")
        elif found[1] == "F":
            self.fin = first
        elif when.strip() == "+0.04":
            # FreeBSD acknowledges after 40 ms what came alone. OpenTOE may do so before.
            when = "+0.00~+0.04 "
        return when, packet

    def line(self, line):
        """A line."""
        if found := PACKET.fullmatch(line):
            when, direction, packet = found.groups()
            if direction == ">":
                when, packet = self.sent(when, " " + " ".join(packet.split()))
            else:
                packet = self.received(packet)
            return f"{when}{direction}{packet}"
        line = line.replace(f"SO_RCVBUF, [{ROUNDED}]", f"SO_RCVBUF, [{BUFFER}]")
        line = line.replace("EWOULDBLOCK", "EAGAIN")
        return re.sub(r"\bTCPI_(\w+)\b", lambda name: STATES.get(name[1], name[0]), line)


def translate(text, engine):
    """A script's text for google's packetdrill, for a host with this engine."""
    text = BRANCH.sub(lambda found: found[2] if found[1] == "STANDARD" else "", text)
    lines = text.splitlines()
    if "listen(" not in text and "connect(" not in text and re.search(r"^\S*\s*<", text, re.MULTILINE):
        # google's runner has no addresses for packets to a socket that is only bound, but for those to none.
        lines = [line for line in lines if not CALL_OF_SOCKET.match(line)]
    translation = Translation(engine)
    return "".join(translation.line(line) + "\n" for line in lines)
