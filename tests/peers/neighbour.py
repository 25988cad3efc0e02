"""The hardware address of a host on the kernel's side of its link."""
import socket
import sys
import time


def hardware_address(of, closed_port):
    """Lets the kernel resolve the host's address, by a connection that is refused."""
    for _ in range(50):
        with socket.socket() as probe:
            probe.settimeout(1)
            probe.connect_ex((of, closed_port))
        with open("/proc/net/arp") as table:
            for line in table:
                words = line.split()
                if words[0] == of and words[3] != "00:00:00:00:00:00":
                    return bytes.fromhex(words[3].replace(":", ""))
        time.sleep(0.1)
    sys.exit(f"the kernel cannot resolve {of}")
