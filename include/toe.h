/* toe.h: what OpenTOE offers beyond POSIX. Functions of libtoe.so, which `opentoe run` preloads.
 *
 * All are declared weak: the same program runs with and without libtoe.so. Where the library is not loaded, they are
 * null: `if (toe_zc_reserve) ...`. (A program that is linked statically, or that prefers to, asks dlsym.) A program may
 * also be linked with -ltoe.
 *
 * Unless noted otherwise, a function returns -1 with errno set where it fails, and never raises SIGPIPE.
 */
#ifndef TOE_H
#define TOE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this interface: functions are added to it, and none changes within a version. */
#define TOE_API_VERSION 1

#ifndef TOE_API
#define TOE_API __attribute__((weak))
#endif

/* The TOE_API_VERSION of the library that is loaded. */
TOE_API int toe_api_version(void);

/* Zero-copy: bytes are written straight into a connection's transmit buffer and read straight out of its receive buffer.
 *
 * Both buffers are rings, so room or data may lie in two pieces: iov[0], then iov[1], which may have no bytes.
 * Addresses stay valid until the commit, release or free that covers them, or the close of the descriptor, whichever is
 * first; nothing may touch them afterwards. The functions may be mixed with send and recv, which are in the same order,
 * but between reserve and commit (peek and release) nothing else may write to (read from) the connection; different
 * connections and the two directions of one are independent, also from several threads.
 *
 * `least` is how many bytes to wait for, at least 1 and at most the size of the buffer (SO_SNDBUF, SO_RCVBUF). On a
 * non-blocking socket, or with MSG_DONTWAIT, what is there now decides: EAGAIN where it is less than `least`.
 * SO_RCVTIMEO and SO_SNDTIMEO hold as for recv and send; poll and epoll as well.
 *
 * errno: EOPNOTSUPP for a descriptor that is not a connection on OpenTOE, or one that another process has too (after
 * fork); EINVAL where `least` or `len` is more than there can be; ENOTCONN, EPIPE, ECONNRESET, ETIMEDOUT, EAGAIN, EINTR
 * as for send and recv.
 */

/* Gives all room of the transmit buffer, at least `least` bytes. Returns how many bytes.
 * flags: 0 or MSG_DONTWAIT. */
TOE_API ssize_t toe_zc_reserve(int fd, struct iovec iov[2], size_t least, int flags);

/* Sends the first `len` bytes of what toe_zc_reserve gave. They must not be changed afterwards: they are sent, and sent
 * again if need be, from where they are. `len` may be 0. flags: 0 or MSG_MORE. Returns 0. */
TOE_API int toe_zc_commit(int fd, size_t len, int flags);

/* Gives all bytes that have come and were not released, at least `least`: at the end of the stream fewer, then 0.
 * Returns how many bytes. Asking again without a release gives the same bytes and what came since.
 * flags: 0 or MSG_DONTWAIT. */
TOE_API ssize_t toe_zc_peek(int fd, struct iovec iov[2], size_t least, int flags);

/* Gives the first `len` bytes of what toe_zc_peek gave back to the connection: their place may be overwritten. Returns 0. */
TOE_API int toe_zc_release(int fd, size_t len);

/* Reads the next `len` bytes without copying them and without giving their place back: waits until all have come (at the
 * end of the stream fewer, then 0), and what is read next, by any means, begins behind them. Returns how many bytes.
 * Their place stays as it is until toe_zc_free, or the close of the descriptor: for programs whose requests complete in
 * another order than they come. The peer can send only as much as the buffer has room: ENOBUFS where `len` does not fit
 * into what is not kept. flags: 0 or MSG_DONTWAIT. */
TOE_API ssize_t toe_zc_take(int fd, struct iovec iov[2], size_t len, int flags);

/* Gives places back that toe_zc_take gave, whole or in part, in any order, from any thread. After fork they are those of
 * both processes, until one of them frees. EINVAL where a piece is no such place (the others are freed). Returns 0. */
TOE_API int toe_zc_free(int fd, const struct iovec *iov, int count);

/* A shared log: records of many connections in one order, which the data-path gives them as they come, in memory of this
 * process (docs/SHARED-LOG.md, man toe_log). For hosts with the laminar engine and `memory.log_bytes`.
 *
 * Peers are ordinary TCP programs: what such a connection brings is records of the log's one size, one after the other.
 * A connection's records stand in its own order. Reading gives whole records only, in the log's order, where they lie.
 */
struct toe_log_record {
    const void *data; /* null: a hole. The connection ended before all of this record had come */
    uint64_t index;   /* its place in the log, counted from 0 */
    uint64_t mark;    /* of its connection, as given to toe_log_add */
    uint64_t number;  /* how many records of its connection came before it */
};

/* Makes the log of this process, with room for `records` records of `record` bytes; both powers of two, the record from
 * 16 bytes to 64 KiB. There can be one. It lives as long as the process; a child of fork does not have it.
 * flags: SOCK_NONBLOCK, SOCK_CLOEXEC. Returns a descriptor for poll, epoll (readable: there are records) and close.
 *   EOPNOTSUPP  the host has no shared logs   EEXIST  there is one   ENOMEM  larger than the host's memory.log_bytes
 *   ENOSPC      the host keeps as many logs as it can
 *   EINVAL      no such sizes, or less room than the receive window of one connection (SO_RCVBUF) */
TOE_API int toe_log_create(size_t record, size_t records, int flags);

/* From now on, what comes on the connection `fd` is records of the log, beginning with the first byte that was not read.
 * `fd` goes on being a socket to write to, and reading it reports the end of the stream. Closing it leaves holes where
 * records have begun. Returns 0.
 *   ENOBUFS   the log has no room for what the connection's window promises its peer
 *   EALREADY  it was added before   EBUSY  another process has it too, it is spliced, or
 *   bytes of it that toe_zc_take gave are not freed   ENOTCONN  it has ended */
TOE_API int toe_log_add(int log, int fd, uint64_t mark);

/* The next records, at most `most`; waits for the first one. Each is given once. What data points to stays as it is until
 * toe_log_trim. flags: 0 or MSG_DONTWAIT. Returns how many; EAGAIN where there is none and the call is not to wait. */
TOE_API ssize_t toe_log_read(int log, struct toe_log_record *list, size_t most, int flags);

/* Gives the oldest `count` records that were read and not given back, back: their connections may send as much more. A log
 * that is not trimmed fills up; then its peers wait, and nothing is lost. Returns 0; EINVAL where fewer were read. */
TOE_API int toe_log_trim(int log, size_t count);

/* Joins two connected TCP sockets: from now on what arrives on one leaves on the other, in the data-path, without this
 * program (docs/SPLICING.md). No other thread or process may use them meanwhile. Joining needs a moment at which
 * nothing is on its way. With blocking sockets the call makes one: it passes on what is unread itself and lets the
 * peers wait, for as long as bytes move (0.2 seconds without any end it), but not over 2 seconds. With O_NONBLOCK on
 * either it only checks whether the moment is now; nothing may be unread.
 *
 * Afterwards the descriptors only report its end: reading waits until both peers have closed (then it returns 0), or
 * fails with ECONNRESET or ETIMEDOUT; writing fails with EPIPE. Closing them does not end what is joined.
 *
 * Returns 0, or -1 and errno; then all goes on as if the program had copied a little:
 *   EAGAIN           something is on its way: go on copying, and try again
 *   EOPNOTSUPP       a socket is the kernel's, or the daemon has not loaded the splice module
 *   EPROTONOSUPPORT  the peers agreed on different segment sizes, timestamps or ECN
 *   ENOBUFS          as many are joined as there may be
 *   ENOTCONN         a socket is not connected, or one of its directions is closed already
 *   EBUSY            another process shares a socket
 *   EINVAL           both are the same socket
 *   EBADF            not a descriptor
 */
TOE_API int toe_splice(int a, int b);

/* Asynchronous sends and receives in place, by a ZeroNIC host of the daemon (docs/ZERONIC.md, man toe_comm): payload goes
 * from the sender's memory to the receiver's, also out of order, and is reported when it is in order. A toe_comm may be
 * used from several threads; a child of fork does not have it. Functions that post never wait. */
typedef struct toe_comm toe_comm;

enum toe_comm_what {
    TOE_COMM_CONNECTED = 1, /* a connect has a connection: use it at once */
    TOE_COMM_LISTENING = 2, /* a listen is done */
    TOE_COMM_ACCEPTED = 3,  /* a peer has opened a connection; value: the port */
    TOE_COMM_SENT = 4,      /* the peer has a send's bytes, or a datagram has left: the memory may change */
    TOE_COMM_RECEIVED = 5,  /* a receive is done; value: bytes, fewer than asked for where the stream ended */
    TOE_COMM_ENDED = 6,     /* the peer sends no more */
    TOE_COMM_FAILED = 7,    /* a post was not carried out; value: an errno */
    TOE_COMM_LOST = 8,      /* a connection is gone with all that was posted; value: an errno */
};

struct toe_comm_event {
    uint32_t what; /* enum toe_comm_what */
    uint32_t connection;
    uint64_t id; /* of the post */
    uint64_t value;
};

/* Attaches to the ZeroNIC host of this name, or with null to the daemon's first. Null with errno where it fails:
 *   EOPNOTSUPP  the program does not run on OpenTOE   ENODEV  no such ZeroNIC host   EACCES  not for this user
 *   ECONNREFUSED, ENOENT  no daemon */
TOE_API toe_comm *toe_comm_open(const char *host);

/* Ends it, as the end of the program does: what was posted is taken, then connections are closed as by toe_comm_drop, and
 * registered memory is not touched any more. */
TOE_API void toe_comm_close(toe_comm *comm);

/* A descriptor for poll and epoll: readable when an event has come since toe_comm_poll gave fewer than asked for. */
TOE_API int toe_comm_fd(toe_comm *comm);

/* Registers writable memory, wherever it is, and gives its key. Memory of a memfd that is sealed against shrinking,
 * and of which the program has a descriptor at that time, is reached faster than other memory. Memory of a CUDA device
 * may be given as well (cudaMalloc, cuMemAlloc, managed memory): a thread of the library's then serves it. Returns
 * 0. */
TOE_API int toe_comm_register(toe_comm *comm, void *at, size_t len, uint32_t *key);

/* Memory that nobody maps, as an accelerator's, is reached by copies between it and a staging area in shared memory. The
 * daemon orders them through a DMA queue, and somebody makes them: this process, or another one that has the memory.
 * toe_comm_device makes a queue: the device's number, and a descriptor for toe_dma_open, which may be passed to another
 * process. With its last copy, and the toe_dma made of it, the device is gone; so it is where a copy takes too long
 * (device_timeout_ms of the host's section). Then connections that use its memory are lost. Returns 0. */
TOE_API int toe_comm_device(toe_comm *comm, uint32_t *device, int *queue);

/* Registers memory of a device, and gives its key. `address` is the device's name for the first byte: copies name bytes
 * by it. Returns 0. */
TOE_API int toe_comm_register_device(toe_comm *comm, uint32_t device, uint64_t address, size_t len, uint32_t *key);

/* Ends a registration: when it returns 0, no byte of it is touched any more. EIO  it is registered no more, but its device
 * was lost: copies that were under way may go on. */
TOE_API int toe_comm_deregister(toe_comm *comm, uint32_t key);

/* Posts, which return 0, or -1 with EAGAIN where too many wait to be taken. `id` is the program's own and comes back.
 * Opens a connection to an IPv4 address. */
struct sockaddr_in;
TOE_API int toe_comm_connect(toe_comm *comm, const struct sockaddr_in *to, uint64_t id);
/* Accepts connections to a port, from now on. */
TOE_API int toe_comm_listen(toe_comm *comm, uint16_t port, uint64_t id);
/* The same, for connections that carry messages: each send takes one receive of the peer's, which has the message's
 * bytes, however many were asked for. A receive is done with 0 bytes where no message will come. Both ends are such, or
 * the connection is lost, as where a message is longer than its receive. A message has 1 byte to 128 MiB - 1. */
TOE_API int toe_comm_connect_messages(toe_comm *comm, const struct sockaddr_in *to, uint64_t id);
TOE_API int toe_comm_listen_messages(toe_comm *comm, uint16_t port, uint64_t id);
/* Opens a flow of unreliable datagrams (UDP) from a port of the host (0: one that it chooses) to a peer's. Both ends do so,
 * and name each other; the peer may be any UDP program. A datagram takes the next receive, and fills it from its beginning;
 * value has its bytes, which may be none. One that finds no receive, or a shorter one, is dropped, and the receive stays. A
 * send is done when its datagram has left, or was dropped; it has 1 byte to the port's MTU less 28. Loss, order and
 * repetition are the network's. TOE_COMM_ENDED does not come, TOE_COMM_LOST where its memory is that of a device which is
 * lost, and toe_comm_end fails. */
TOE_API int toe_comm_connect_datagrams(toe_comm *comm, uint16_t port, const struct sockaddr_in *to, uint64_t id);
/* Sends `len` bytes from byte `offset` of registered memory. They must not change until TOE_COMM_SENT. */
TOE_API int toe_comm_send(toe_comm *comm, uint32_t connection, uint32_t key, uint64_t offset, size_t len, uint64_t id);
/* Receives the stream's next `len` bytes to byte `offset` of registered memory. Receives are done in their order. */
TOE_API int toe_comm_recv(toe_comm *comm, uint32_t connection, uint32_t key, uint64_t offset, size_t len, uint64_t id);
/* The stream ends behind what was posted. */
TOE_API int toe_comm_end(toe_comm *comm, uint32_t connection);
/* Forgets a connection; one whose streams have not both ended is reset, or where the peer does not have all bytes. What was posted on it is not reported any more. */
TOE_API int toe_comm_drop(toe_comm *comm, uint32_t connection);

/* Takes up to `most` events, without waiting. Returns how many. */
TOE_API int toe_comm_poll(toe_comm *comm, struct toe_comm_event *list, int most);
/* The same, after waiting for one; for `timeout` milliseconds at most where that is not negative. Returns how many; 0
 * after the time. ECONNRESET  the daemon is gone. */
TOE_API int toe_comm_wait(toe_comm *comm, struct toe_comm_event *list, int most, int timeout);

/* Volumes: block storage over Solar (docs/SOLAR.md, man toe_volume), for programs of the daemon's user. Blocks go between
 * the network and the program's memory, without a socket in between. A toe_volume may be used from several threads; a
 * child of fork does not have it. Functions that post never wait. */
typedef struct toe_volume toe_volume;

struct toe_volume_event {
    uint64_t id;     /* of the request */
    int error;       /* 0, or an errno: EIO, ENOSPC, EPERM (read-only), EFAULT, EINVAL, ESHUTDOWN (another client has it) */
    uint32_t unused;
};

/* Opens a volume that a host uses (its section [[block]]): that host, or with null the first one that uses it. Waits for
 * the volume's server, 10 seconds at most. Null with errno where it fails:
 *   EOPNOTSUPP  the program does not run on OpenTOE   ENODEV  no host uses such a volume   EACCES  not for this user
 *   ETIMEDOUT  the server does not answer   EIO  the server refuses it: see opentoe why   ECONNREFUSED, ENOENT  no
 *   daemon */
TOE_API toe_volume *toe_volume_open(const char *volume, const char *host);

/* Ends it, as the end of the program does: a write that has not ended may be carried out or not, and registered memory is
 * not touched any more. */
TOE_API void toe_volume_close(toe_volume *volume);

/* Bytes of the volume; and whether writing fails with EPERM. */
TOE_API uint64_t toe_volume_size(toe_volume *volume);
TOE_API int toe_volume_is_read_only(toe_volume *volume);

/* A descriptor for poll and epoll: readable when a request has ended since toe_volume_poll gave fewer than asked for. */
TOE_API int toe_volume_fd(toe_volume *volume);

/* Registers writable memory, and gives its key; as toe_comm_register, but for memory of devices. Returns 0. */
TOE_API int toe_volume_register(toe_volume *volume, void *at, size_t len, uint32_t *key);
/* Ends a registration: when it returns 0, no byte of it is touched any more. A request that would need it ends with EFAULT. */
TOE_API int toe_volume_deregister(toe_volume *volume, uint32_t key);

/* Posts, which return 0, or -1 with EAGAIN where too many wait to be taken. `at` and `len` are multiples of 4096, `len` is
 * at most 1 MiB; the memory is `len` bytes from byte `offset` of a registration on. Requests end in any order; two that
 * are under way at once have no order. A write is durable when it has ended, and its memory must not change before. */
TOE_API int toe_volume_read(toe_volume *volume, uint64_t at, size_t len, uint32_t key, uint64_t offset, uint64_t id);
TOE_API int toe_volume_write(toe_volume *volume, uint64_t at, size_t len, uint32_t key, uint64_t offset, uint64_t id);

/* Takes up to `most` events, without waiting. Returns how many. */
TOE_API int toe_volume_poll(toe_volume *volume, struct toe_volume_event *list, int most);
/* The same, after waiting for one; for `timeout` milliseconds at most where that is not negative. Returns how many; 0
 * after the time. ECONNRESET  the daemon is gone. */
TOE_API int toe_volume_wait(toe_volume *volume, struct toe_volume_event *list, int most, int timeout);

/* Serving a device's queue (toe_comm_device). A toe_dma is used by one thread at a time. */
typedef struct toe_dma toe_dma;

struct toe_dma_copy {
    uint64_t id;      /* for toe_dma_done */
    uint64_t address; /* of the device's memory: within a registration */
    size_t len;
    void *staging;    /* the other end, in memory that is shared with the daemon */
    int into_device;  /* from the staging area to the device; otherwise the other way */
};

/* Takes the descriptor over. Null with errno where it is no such queue. */
TOE_API toe_dma *toe_dma_open(int queue);
TOE_API void toe_dma_close(toe_dma *dma);
/* The staging area, for devices that need it before. */
TOE_API void *toe_dma_staging(toe_dma *dma, size_t *len);
/* Takes up to `most` copies that are to be made, after waiting for one; for `timeout` milliseconds at most where that is
 * not negative. Returns how many; 0 after the time. ECONNRESET  the queue has ended. */
TOE_API int toe_dma_take(toe_dma *dma, struct toe_dma_copy *list, int most, int timeout);
/* A copy is done, or failed with this errno. In any order, and each once. Returns 0. */
TOE_API int toe_dma_done(toe_dma *dma, uint64_t id, int error);

#ifdef __cplusplus
}
#endif

#endif
