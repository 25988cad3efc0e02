/* zc_stream: bulk transfer through the zero-copy interface of OpenTOE (include/toe.h), checked.
 *
 * The client makes 64-bit words in the transmit buffer itself, the server compares them where they arrived, and prints
 * at the end what it found. Without libtoe.so, or with -s, the same transfer goes through send and recv.
 */
#define _GNU_SOURCE
#include "program.h"
#include "../include/toe.h"

enum { BLOCK = 64 * 1024, WORD = 8 };

/* First bytes of a connection, client to server, in host order: both ends are this program on one machine. */
struct order {
    uint64_t magic, total, seed, check;
};
static const uint64_t MAGIC = 0x4f70656e544f455au, VERDICT = 0x600dda7a600dda7au;

static struct sockaddr_in address = {.sin_family = AF_INET};
static int use_sockets, check = 1;
static uint64_t block[BLOCK / WORD];

/* Makes the words of the stream from byte `at` on in `piece`. */
static void make(struct iovec piece, uint64_t at, uint64_t seed) {
    uint64_t *words = piece.iov_base;
    for (size_t i = 0; check && i < piece.iov_len / WORD; i++) words[i] = mix(seed + at / WORD + i);
}

/* How many words of `piece` are not those of the stream from byte `at` on. */
static uint64_t compare(struct iovec piece, uint64_t at, uint64_t seed) {
    const uint64_t *words = piece.iov_base;
    uint64_t wrong = 0;
    for (size_t i = 0; check && i < piece.iov_len / WORD; i++) wrong += words[i] != mix(seed + at / WORD + i);
    return wrong;
}

/* Cuts two pieces to `most` bytes and to whole words; returns how many bytes are left. Rings begin at a whole word. */
static size_t cut(struct iovec iov[2], size_t most) {
    most = most / WORD * WORD;
    if (iov[0].iov_len > most) iov[0].iov_len = most;
    if (iov[1].iov_len > most - iov[0].iov_len) iov[1].iov_len = most - iov[0].iov_len;
    return iov[0].iov_len + iov[1].iov_len;
}

/* Sends some of the `left` bytes that begin at `at`; returns how many. */
static size_t send_some(int fd, uint64_t at, uint64_t left, uint64_t seed) {
    struct iovec iov[2] = {{block, left < BLOCK ? left : BLOCK}};
    size_t length = iov[0].iov_len;
    if (use_sockets) {
        make(iov[0], at, seed);
        send_or_die(fd, block, length);
        return length;
    }
    ssize_t room = toe_zc_reserve(fd, iov, length, 0);
    if (room < 0) die("toe_zc_reserve");
    length = cut(iov, left < (size_t)room ? left : (size_t)room);
    make(iov[0], at, seed);
    make(iov[1], at + iov[0].iov_len, seed);
    if (toe_zc_commit(fd, length, 0) < 0) die("toe_zc_commit");
    return length;
}

/* Receives some of the `left` bytes that begin at `at`; returns how many, and counts wrong words. */
static size_t receive_some(int fd, uint64_t at, uint64_t left, uint64_t seed, uint64_t *wrong) {
    struct iovec iov[2] = {{block, left < BLOCK ? left : BLOCK}};
    size_t length = iov[0].iov_len;
    if (use_sockets) {
        receive_or_die(fd, block, length);
        *wrong += compare(iov[0], at, seed);
        return length;
    }
    ssize_t there = toe_zc_peek(fd, iov, WORD, 0);
    if (there < WORD) {
        if (there >= 0) errno = 0;
        die("toe_zc_peek");
    }
    length = cut(iov, (size_t)there);
    *wrong += compare(iov[0], at, seed) + compare(iov[1], at + iov[0].iov_len, seed);
    if (toe_zc_release(fd, length) < 0) die("toe_zc_release");
    return length;
}

static int serve(long times) {
    int listener = listen_at(&address, 0, 16, 0), failed = 0;
    for (long i = 0; times == 0 || i < times; i++) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0) die("accept");
        struct order order;
        receive_or_die(fd, &order, sizeof order);
        if (order.magic != MAGIC) errno = EPROTO, die("the peer is not zc_stream");
        check = order.check != 0;
        uint64_t wrong = 0;
        for (uint64_t at = 0; at < order.total;) at += receive_some(fd, at, order.total - at, order.seed, &wrong);
        uint64_t verdict = VERDICT + wrong;
        send_or_die(fd, &verdict, sizeof verdict);
        close(fd);
        failed |= wrong != 0;
    }
    return failed;
}

static int transfer(uint64_t total) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) die("socket");
    if (connect(fd, (struct sockaddr *)&address, sizeof address) < 0) die("connect");
    uint64_t begin = now();
    struct order order = {MAGIC, total, begin ^ (uint64_t)getpid(), (uint64_t)check};
    send_or_die(fd, &order, sizeof order);
    for (uint64_t at = 0; at < total;) at += send_some(fd, at, total - at, order.seed);
    uint64_t verdict;
    receive_or_die(fd, &verdict, sizeof verdict);
    double elapsed = (double)(now() - begin) / 1e9;
    printf("{\"sent\":%llu,\"seconds\":%.3f,\"gbit_per_s\":%.3f,\"checked\":%s,\"zero_copy\":%s,\"ok\":%s}\n",
           (unsigned long long)total, elapsed, (double)total * 8 / elapsed / 1e9, check ? "true" : "false",
           use_sockets ? "false" : "true", verdict == VERDICT ? "true" : "false");
    return verdict != VERDICT;
}

static _Noreturn void usage(void) {
    fprintf(stderr, "usage: zc_stream -l [-a ADDRESS] [-p PORT] [-n TRANSFERS] [-s]  serve (0 transfers: for ever)\n"
                    "       zc_stream -c ADDRESS [-p PORT] -u BYTES [-q] [-s]         send (-q: neither make nor compare)\n"
                    "       -s: with send and recv, as without libtoe.so\n");
    exit(2);
}

int main(int argc, char **argv) {
    int port = 7779, serving = 0, calling = 0;
    long times = 0;
    uint64_t total = 0;
    for (int option; (option = getopt(argc, argv, "la:c:p:n:u:qs")) != -1;) {
        if (option == 'l' && (serving = 1)) continue;
        if (option == 'a' && inet_pton(AF_INET, optarg, &address.sin_addr) == 1) continue;
        if (option == 'c' && inet_pton(AF_INET, optarg, &address.sin_addr) == 1 && (calling = 1)) continue;
        if (option == 'p' && (port = atoi(optarg)) > 0 && port < 65536) continue;
        if (option == 'n' && (times = atol(optarg)) >= 0) continue;
        if (option == 'u' && (total = strtoull(optarg, NULL, 10) / WORD * WORD) > 0) continue;
        if (option == 'q' && (check = 0, 1)) continue;
        if (option == 's' && (use_sockets = 1)) continue;
        usage();
    }
    if (optind < argc || serving == calling || (calling && !total)) usage();
    if (!toe_zc_reserve) use_sockets = 1;
    address.sin_port = htons((uint16_t)port);
    signal(SIGPIPE, SIG_IGN);
    return serving ? serve(times) : transfer(total);
}
