"""A tensor of PyTorch's CUDA allocator to another process's, through libtoe's toe_comm_* (include/toe.h).

tensors.py receive PORT | tensors.py send PORT     on the ZeroNIC hosts b and a of tests/device/cuda
"""

import ctypes
import socket
import struct
import sys

import torch

toe = ctypes.CDLL(None, use_errno=True)
toe.toe_comm_open.restype = ctypes.c_void_p
toe.toe_comm_open.argtypes = [ctypes.c_char_p]
toe.toe_comm_register.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
toe.toe_comm_connect.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64]
toe.toe_comm_listen.argtypes = [ctypes.c_void_p, ctypes.c_uint16, ctypes.c_uint64]
post = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_uint64]
toe.toe_comm_send.argtypes = toe.toe_comm_recv.argtypes = post
toe.toe_comm_end.argtypes = [ctypes.c_void_p, ctypes.c_uint32]
toe.toe_comm_wait.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int]
toe.toe_comm_close.argtypes = [ctypes.c_void_p]


class Event(ctypes.Structure):
    _fields_ = [("what", ctypes.c_uint32), ("connection", ctypes.c_uint32), ("id", ctypes.c_uint64), ("value", ctypes.c_uint64)]


CONNECTED, ACCEPTED, SENT, RECEIVED, ENDED, FAILED, LOST = 1, 3, 4, 5, 6, 7, 8


def done(result, what):
    if result is None or result < 0:
        sys.exit(f"{what}: errno {ctypes.get_errno()}")
    return result


def wait(comm, what):
    """The next event of this kind."""
    event = Event()
    for _ in range(1000):
        if done(toe.toe_comm_wait(comm, ctypes.byref(event), 1, 60_000), "toe_comm_wait") == 0:
            sys.exit("nothing came")
        if event.what in (FAILED, LOST):
            sys.exit(f"event {event.what}: errno {event.value}")
        if event.what == what:
            return event
    sys.exit("other events only")


def register(comm, tensor):
    key = ctypes.c_uint32()
    size = tensor.numel() * tensor.element_size()
    done(toe.toe_comm_register(comm, tensor.data_ptr(), size, ctypes.byref(key)), "toe_comm_register")
    return key.value, size


def expected():
    generator = torch.Generator(device="cuda").manual_seed(17)
    return torch.randint(-(2**62), 2**62, (3_000_001,), generator=generator, device="cuda")


def main():
    role, port = sys.argv[1], int(sys.argv[2])
    comm = toe.toe_comm_open(b"b" if role == "receive" else b"a")
    if not comm:
        sys.exit(f"toe_comm_open: errno {ctypes.get_errno()}")
    if role == "receive":
        tensor = torch.zeros(3_000_001, dtype=torch.int64, device="cuda")
        torch.cuda.synchronize()
        key, size = register(comm, tensor)
        done(toe.toe_comm_listen(comm, port, 1), "toe_comm_listen")
        print("listening", flush=True)
        connection = wait(comm, ACCEPTED).connection
        done(toe.toe_comm_recv(comm, connection, key, 0, size, 2), "toe_comm_recv")
        assert wait(comm, RECEIVED).value == size
        assert torch.equal(tensor, expected()), "the tensor is another one"
        done(toe.toe_comm_end(comm, connection), "toe_comm_end")
        wait(comm, ENDED)
        print(f"{size} bytes, equal")
    else:
        tensor = expected()
        torch.cuda.synchronize()
        key, size = register(comm, tensor)
        to = struct.pack("=H", socket.AF_INET) + struct.pack("!H", port) + socket.inet_aton("10.0.0.2") + bytes(8)
        done(toe.toe_comm_connect(comm, to, 1), "toe_comm_connect")
        connection = wait(comm, CONNECTED).connection
        done(toe.toe_comm_send(comm, connection, key, 0, size, 2), "toe_comm_send")
        done(toe.toe_comm_end(comm, connection), "toe_comm_end")
        wait(comm, ENDED)
    toe.toe_comm_close(comm)


main()
