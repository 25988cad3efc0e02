/* Datagram rsockets: a server that echoes, and a client that compares each byte and tries what calls promise.
 * usage: datagrams serve ADDRESS PORT | datagrams ask ADDRESS PORT */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/rsocket.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

/* More than any packet of the tests holds. */
#define MOST 4096
/* Datagrams of the ordinary exchange. */
#define ROUNDS 2000

static char out[MOST], in[MOST];

static void fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

static void need(int holds, const char *what)
{
	if (!holds) {
		fprintf(stderr, "not so: %s (errno %d)\n", what, errno);
		exit(1);
	}
}

static struct sockaddr_in address_of(const char *ip, const char *port)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(atoi(port)) };

	need(inet_pton(AF_INET, ip, &address.sin_addr) == 1, "an address");
	return address;
}

/* Echoes until a datagram is "end". */
static void serve(struct sockaddr_in own)
{
	struct sockaddr_in from;
	socklen_t len;
	ssize_t got;
	int rs = rsocket(AF_INET, SOCK_DGRAM, 0);

	if (rs < 0 || rbind(rs, (struct sockaddr *) &own, sizeof own))
		fail("bind");
	do {
		len = sizeof from;
		got = rrecvfrom(rs, in, sizeof in, 0, (struct sockaddr *) &from, &len);
		if (got < 0)
			fail("rrecvfrom");
		if (rsendto(rs, in, got, 0, (struct sockaddr *) &from, len) != got)
			fail("rsendto");
	} while (got != 3 || memcmp(in, "end", 3));
	if (rclose(rs))
		fail("rclose");
}

static int readable(int rs, int timeout)
{
	struct pollfd fd = { .fd = rs, .events = POLLIN };

	return rpoll(&fd, 1, timeout) == 1 && fd.revents == POLLIN;
}

/* One datagram there and back. */
static void echo(int rs, size_t len, unsigned seed)
{
	ssize_t got;
	size_t i;

	for (i = 0; i < len; i++)
		out[i] = (char) (seed * 31 + i * 7 + (i >> 8));
	if (rsend(rs, out, len, 0) != (ssize_t) len)
		fail("rsend");
	need(readable(rs, 5000), "an echo comes");
	memset(in, 0x55, sizeof in);
	got = rrecv(rs, in, sizeof in, 0);
	if (got != (ssize_t) len || memcmp(in, out, len)) {
		fprintf(stderr, "datagram %u of %zu bytes came back as %zd other ones\n", seed, len, got);
		exit(1);
	}
}

/* The most bytes that a datagram may have. */
static size_t longest(int rs)
{
	size_t len;

	for (len = MOST; len > 0 && rsend(rs, out, len, 0) < 0; len--)
		need(errno == EMSGSIZE, "a datagram that is too long is refused");
	need(readable(rs, 5000) && rrecv(rs, in, sizeof in, 0) == (ssize_t) len, "the longest one comes back");
	return len;
}

/* Names, flags, parts, what is cut off. */
static void calls(int rs, struct sockaddr_in server)
{
	struct sockaddr_in name;
	socklen_t len = sizeof name;
	struct iovec parts[3] = { { "ab", 2 }, { "", 0 }, { "cdef", 4 } };
	struct iovec places[2] = { { in, 3 }, { in + 100, 2 } };
	struct msghdr sent = { .msg_iov = parts, .msg_iovlen = 3 };
	struct msghdr got = { .msg_name = &name, .msg_namelen = sizeof name, .msg_iov = places, .msg_iovlen = 2 };
	int kind = 0;

	need(!rgetpeername(rs, (struct sockaddr *) &name, &len) && name.sin_port == server.sin_port, "the peer's name");
	need(name.sin_addr.s_addr == server.sin_addr.s_addr && len == sizeof name, "the peer's address");
	need(!rgetsockname(rs, (struct sockaddr *) &name, &len) && name.sin_port != 0, "an own port");
	len = sizeof kind;
	need(!rgetsockopt(rs, SOL_SOCKET, SO_TYPE, &kind, &len) && kind == SOCK_DGRAM, "the socket's kind");
	need(rrecv(rs, in, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN, "nothing is there");
	need(!readable(rs, 20), "nothing comes by itself");
	need(rsendmsg(rs, &sent, 0) == 6 && readable(rs, 5000), "parts are one datagram");
	need(rrecv(rs, in, 4, MSG_PEEK) == 4 && !memcmp(in, "abcd", 4), "MSG_PEEK leaves it");
	need(rrecv(rs, in, 4, MSG_PEEK | MSG_TRUNC) == 6, "its whole length is returned");
	need(rrecvmsg(rs, &got, 0) == 5 && got.msg_flags == MSG_TRUNC, "what has no room is cut off");
	need(!memcmp(in, "abc", 3) && !memcmp(in + 100, "de", 2), "parts are filled in order");
	need(got.msg_namelen == sizeof name && name.sin_port == server.sin_port, "the sender's name");
	need(rrecv(rs, in, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN, "the rest is gone");
	need(rsend(rs, "", 0, 0) == 0 && readable(rs, 5000) && rrecv(rs, in, 9, 0) == 0, "an empty one");
}

/* Datagrams of another socket do not count for one that has a peer; sockets without one take all. */
static void unknown_peers(int connected, struct sockaddr_in server)
{
	struct sockaddr_in name, from;
	socklen_t len = sizeof name;
	int other = rsocket(AF_INET, SOCK_DGRAM, 0);

	need(other >= 0 && rsend(other, "x", 1, 0) < 0 && errno == EDESTADDRREQ, "a destination is needed");
	need(!rgetsockname(connected, (struct sockaddr *) &name, &len), "an own name");
	need(rsendto(other, "unknown!", 8, 0, (struct sockaddr *) &name, len) == 8, "a datagram to the same host");
	echo(connected, 100, 1);
	need(rrecv(connected, in, 9, MSG_DONTWAIT) < 0 && errno == EAGAIN, "those of unknown peers are dropped");
	need(rsendto(other, "abc", 3, 0, (struct sockaddr *) &server, sizeof server) == 3, "the server is asked");
	len = sizeof from;
	need(rrecvfrom(other, in, 9, 0, (struct sockaddr *) &from, &len) == 3 && !memcmp(in, "abc", 3), "and answers");
	need(from.sin_port == server.sin_port && from.sin_addr.s_addr == server.sin_addr.s_addr, "by its name");
	need(rbind(other, (struct sockaddr *) &name, sizeof name) < 0 && errno == EINVAL, "it is bound already");
	need(!rclose(other), "rclose");
	other = rsocket(AF_INET, SOCK_DGRAM, 0);
	need(rbind(other, (struct sockaddr *) &name, sizeof name) < 0 && errno == EADDRINUSE, "the port has an owner");
	need(rbind(other, (struct sockaddr *) &server, sizeof server) < 0 && errno == EADDRNOTAVAIL, "others' address");
	name.sin_port = htons(4791);
	need(rbind(other, (struct sockaddr *) &name, sizeof name) < 0 && errno == EADDRINUSE, "RoCEv2's port");
	need(rlisten(other, 1) < 0 && errno == EOPNOTSUPP, "datagrams have no connections");
	need(!rclose(other) && rclose(other) < 0 && errno == EBADF, "closed once");
}

static void ask(struct sockaddr_in server)
{
	unsigned round;
	size_t most;
	int rs = rsocket(AF_INET, SOCK_DGRAM, 0);

	if (rs < 0 || rconnect(rs, (struct sockaddr *) &server, sizeof server))
		fail("connect");
	echo(rs, 10, 0);
	most = longest(rs);
	for (round = 1; round <= ROUNDS; round++)
		echo(rs, round * 37 % (most + 1), round);
	calls(rs, server);
	unknown_peers(rs, server);
	need(!rfcntl(rs, F_SETFL, O_NONBLOCK) && rrecv(rs, in, 1, 0) < 0 && errno == EAGAIN, "it does not wait");
	need(rsend(rs, "end", 3, 0) == 3 && readable(rs, 5000) && rrecv(rs, in, 9, 0) == 3, "the end");
	need(!rshutdown(rs, SHUT_RDWR) && rsend(rs, "x", 1, 0) < 0 && errno == EPIPE, "nothing is sent any more");
	need(rrecv(rs, in, 1, 0) == 0 && !rclose(rs), "nothing is received any more");
	printf("%u datagrams of up to %zu bytes\n", ROUNDS, most);
}

int main(int argc, char **argv)
{
	need(argc == 4, "three arguments");
	if (strcmp(argv[1], "serve"))
		ask(address_of(argv[2], argv[3]));
	else
		serve(address_of(argv[2], argv[3]));
	return 0;
}
