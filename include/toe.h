/* toe.h: what OpenTOE offers beyond POSIX. The functions are in libtoe.so, which `toe run` preloads; they are weak
 * here, so a program that was not started on OpenTOE sees null pointers and goes its ordinary way:
 *
 *     if (toe_splice && toe_splice(client, server) == 0) ...
 */
#ifndef TOE_H
#define TOE_H

#ifdef __cplusplus
extern "C" {
#endif

/* Joins two connected TCP sockets: from now on what arrives on one leaves on the other, in the data-path, without this
 * program (docs/SPLICING.md). No other thread or process may use them meanwhile. Joining needs a moment at which nothing
 * is on its way. With blocking sockets the call makes one, for up to 0.2 seconds: it passes on what is unread itself and
 * lets the peers wait. With O_NONBLOCK on either it only looks whether the moment is now; nothing may be unread.
 *
 * Afterwards the descriptors only tell how it ends: reading waits until both peers have closed (then it returns 0), or
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
int toe_splice(int a, int b) __attribute__((weak));

#ifdef __cplusplus
}
#endif

#endif
