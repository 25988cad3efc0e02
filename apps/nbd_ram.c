/* nbd_ram: a disk in memory over the NBD protocol (newstyle, simple replies), for fio, nbdcopy, qemu and the like.
 *
 * A disk of many queues completes commands in another order than they came. Here each queue has its share of the
 * blocks, and the commands that came together are done queue by queue. With libtoe.so, what is to be written stays in
 * the connection's receive buffer until its command is done (toe_zc_take, toe_zc_free; thesis section 5.5.2.2), and is
 * copied once, onto the disk; otherwise it is received into memory first. `-s` does that in both cases.
 *
 * One thread and one epoll set. Commands larger than SMALL are done as they come.
 */
#define _GNU_SOURCE
#include "program.h"
#include "../include/toe.h"
#include <endian.h>
#include <sys/mman.h>
#include <sys/uio.h>

enum { SMALL = 16 * 1024, QUEUES = 8, STRIPE = 4096, TOGETHER = 256, EVENTS = 64, LARGEST = 32 << 20 };

/* The protocol: github.com/NetworkBlockDevice/nbd, doc/proto.md. Everything is big endian. */
enum { OPT_EXPORT_NAME = 1, OPT_ABORT = 2, OPT_LIST = 3, OPT_INFO = 6, OPT_GO = 7 };
enum { REP_ACK = 1, REP_SERVER = 2, REP_INFO = 3 };
enum { CMD_READ = 0, CMD_WRITE = 1, CMD_DISC = 2, CMD_FLUSH = 3 };
enum { HAS_FLAGS = 1, SEND_FLUSH = 4, SEND_FUA = 8, MULTI_CONN = 256 };
static const uint64_t NBDMAGIC = 0x4e42444d41474943u, IHAVEOPT = 0x49484156454f5054u, OPTREPLY = 0x3e889045565a9u;
static const uint32_t REQUEST = 0x25609513u, REPLY = 0x67446698u, UNSUPPORTED = 0x80000001u;

struct request {
    uint32_t magic;
    uint16_t flags, type;
    uint64_t cookie, offset;
    uint32_t length;
} __attribute__((packed));

struct reply {
    uint32_t magic, error;
    uint64_t cookie;
} __attribute__((packed));

/* A command that waits for its queue. What it writes lies in the receive buffer, or in `copy`. */
struct command {
    struct request request;
    struct iovec place[2];
    char *copy;
};

enum state { HELLO, OPTION, READY, PAYLOAD };

struct client {
    int fd;
    enum state state;
    char input[4096];           /* of the greeting, an option or a request */
    size_t have;
    struct command next;        /* being received */
    size_t done;                /* PAYLOAD: how much of what it writes is on the disk */
    size_t count;               /* commands that wait for their queue */
    struct command commands[TOGETHER];
    char *output;               /* what the socket did not take yet */
    size_t start, length, room;
};

static struct sockaddr_in address = {.sin_family = AF_INET};
static uint64_t size = 64 << 20;
static char *disk;
static int in_place = 1;

/* Sends, or keeps for later; 0 where the connection is over. */
static int send_pieces(struct client *client, const struct iovec *pieces, int count) {
    size_t skip = 0;
    if (!client->length) {
        ssize_t n = writev(client->fd, pieces, count);
        if (n < 0 && errno != EAGAIN) return 0;
        if (n > 0) skip = (size_t)n;
    }
    for (int i = 0; i < count; i++) {
        size_t gone = skip < pieces[i].iov_len ? skip : pieces[i].iov_len, left = pieces[i].iov_len - gone;
        skip -= gone;
        if (!left) continue;
        if (client->start + client->length + left > client->room) {
            size_t room = 2 * (client->length + left);
            char *larger = malloc(room);
            if (!larger) die("malloc");
            if (client->length) memcpy(larger, client->output + client->start, client->length);
            free(client->output);
            client->output = larger, client->start = 0, client->room = room;
        }
        memcpy(client->output + client->start + client->length, (char *)pieces[i].iov_base + gone, left);
        client->length += left;
    }
    return 1;
}

static int say_bytes(struct client *client, const void *bytes, size_t length) {
    struct iovec piece = {(void *)bytes, length};
    return send_pieces(client, &piece, 1);
}

/* Sends what was left over; 0 where the connection is over. */
static int flush(struct client *client) {
    while (client->length) {
        ssize_t n = send(client->fd, client->output + client->start, client->length, MSG_NOSIGNAL);
        if (n < 0) return errno == EAGAIN;
        client->start += (size_t)n;
        client->length -= (size_t)n;
    }
    client->start = 0;
    return 1;
}

static int answer_option(struct client *client, uint32_t option, uint32_t type, const void *data, uint32_t length) {
    struct {
        uint64_t magic;
        uint32_t option, type, length;
    } __attribute__((packed)) head = {htobe64(OPTREPLY), htobe32(option), htobe32(type), htobe32(length)};
    struct iovec pieces[] = {{&head, sizeof head}, {(void *)data, length}};
    return send_pieces(client, pieces, 2);
}

/* An option of the client; 0 where the connection is over. */
static int take_option(struct client *client, uint32_t option) {
    static const uint16_t flags = HAS_FLAGS | SEND_FLUSH | SEND_FUA | MULTI_CONN;
    struct {
        uint16_t type;
        uint64_t size;
        uint16_t flags;
    } __attribute__((packed)) info = {0, htobe64(size), htobe16(flags)};
    static const uint32_t nameless = 0;
    switch (option) {
    case OPT_EXPORT_NAME:
        client->state = READY;
        return say_bytes(client, &info.size, sizeof info.size + sizeof info.flags);
    case OPT_GO:
        client->state = READY;
        /* fall through */
    case OPT_INFO:
        return answer_option(client, option, REP_INFO, &info, sizeof info) &&
               answer_option(client, option, REP_ACK, NULL, 0);
    case OPT_LIST:
        return answer_option(client, option, REP_SERVER, &nameless, sizeof nameless) &&
               answer_option(client, option, REP_ACK, NULL, 0);
    case OPT_ABORT:
        answer_option(client, option, REP_ACK, NULL, 0);
        return 0;
    default:
        return answer_option(client, option, UNSUPPORTED, NULL, 0);
    }
}

/* Reads until `input` has `length` bytes. 1: it has; 0: not yet; -1: the connection is over. */
static int fill(struct client *client, size_t length) {
    while (client->have < length) {
        ssize_t n = recv(client->fd, client->input + client->have, length - client->have, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return 0;
        if (n <= 0) return -1;
        client->have += (size_t)n;
    }
    return 1;
}

/* The greeting and options, as far as they have come; as `fill`. */
static int negotiate(struct client *client) {
    if (client->state == HELLO) {
        int there = fill(client, 4);
        if (there <= 0) return there;
        client->have = 0, client->state = OPTION;
    }
    while (client->state == OPTION) {
        struct {
            uint64_t magic;
            uint32_t option, length;
        } __attribute__((packed)) head;
        int there = fill(client, sizeof head);
        if (there <= 0) return there;
        memcpy(&head, client->input, sizeof head);
        size_t whole = sizeof head + be32toh(head.length);
        if (be64toh(head.magic) != IHAVEOPT || whole > sizeof client->input) return -1;
        if ((there = fill(client, whole)) <= 0) return there;
        client->have = 0;
        if (!take_option(client, be32toh(head.option))) return -1;
    }
    return 1;
}

static int fits(const struct request *request) {
    return request->offset <= size && request->length <= size - request->offset;
}

/* Does the commands that came together, queue by queue; 0 where the connection is over. */
static int complete(struct client *client) {
    static struct reply replies[TOGETHER];
    static struct iovec out[2 * TOGETHER], freed[2 * TOGETHER];
    int pieces = 0, places = 0, done = 0;
    for (uint64_t queue = 0; queue < QUEUES; queue++) {
        for (size_t i = 0; i < client->count; i++) {
            struct command *command = &client->commands[i];
            struct request *request = &command->request;
            if (request->offset / STRIPE % QUEUES != queue) continue;
            int valid = fits(request);
            char *at = disk + (valid ? request->offset : 0);
            for (int k = 0; request->type == CMD_WRITE && k < 2; k++) {
                if (valid && command->place[k].iov_len) memcpy(at, command->place[k].iov_base, command->place[k].iov_len);
                at += command->place[k].iov_len;
                if (!command->copy && command->place[k].iov_len) freed[places++] = command->place[k];
            }
            free(command->copy);
            replies[done] = (struct reply){htobe32(REPLY), htobe32(valid ? 0 : ENOSPC), request->cookie};
            out[pieces++] = (struct iovec){&replies[done++], sizeof *replies};
            if (request->type == CMD_READ && valid) out[pieces++] = (struct iovec){at, request->length};
        }
    }
    client->count = 0;
    if (places && toe_zc_free(client->fd, freed, places) < 0) die("toe_zc_free");
    return !pieces || send_pieces(client, out, pieces);
}

/* The bytes of a small write: where they lie, or 0 where they have not all come, or -1. */
static int take_payload(struct client *client, struct command *command) {
    size_t length = command->request.length;
    if (in_place) {
        ssize_t n = toe_zc_take(client->fd, command->place, length, 0);
        if (n == (ssize_t)length) return 1;
        /* The commands that wait have the whole buffer. */
        if (n < 0 && errno == ENOBUFS && client->count) return complete(client) ? take_payload(client, command) : -1;
        return n < 0 && errno == EAGAIN ? 0 : -1;
    }
    if (!command->copy && !(command->copy = malloc(length))) die("malloc");
    command->place[0].iov_base = command->copy;
    while (command->place[0].iov_len < length) {
        size_t have = command->place[0].iov_len;
        ssize_t n = recv(client->fd, command->copy + have, length - have, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return 0;
        if (n <= 0) return -1;
        command->place[0].iov_len += (size_t)n;
    }
    return 1;
}

/* A write that is not small goes onto the disk as it comes; as `fill`. */
static int pour(struct client *client) {
    static char nowhere[SMALL];
    struct request *request = &client->next.request;
    int valid = fits(request);
    while (client->done < request->length) {
        size_t left = request->length - client->done;
        uint64_t at = request->offset + client->done;
        ssize_t n = recv(client->fd, valid ? disk + at : nowhere, valid || left < SMALL ? left : SMALL, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return 0;
        if (n <= 0) return -1;
        client->done += (size_t)n;
    }
    client->state = READY;
    request->type = CMD_FLUSH; /* only to be answered */
    client->commands[client->count++] = client->next;
    return 1;
}

/* The next command, as far as it has come; as `fill`. */
static int take_command(struct client *client) {
    if (client->state == PAYLOAD) return pour(client);
    struct command *next = &client->next;
    struct request *request = &next->request;
    if (client->have < sizeof *request) {
        int there = fill(client, sizeof *request);
        if (there <= 0) return there;
        memset(next, 0, sizeof *next);
        memcpy(request, client->input, sizeof *request);
        request->type = be16toh(request->type);
        request->offset = be64toh(request->offset), request->length = be32toh(request->length);
        if (be32toh(request->magic) != REQUEST || request->type > CMD_FLUSH || request->type == CMD_DISC) return -1;
        if (request->type != CMD_FLUSH && request->length > LARGEST) return -1;
    }
    if (request->type == CMD_WRITE && request->length > SMALL) {
        client->done = client->have = 0;
        client->state = PAYLOAD;
        return complete(client) ? pour(client) : -1;
    }
    int there = request->type == CMD_WRITE && request->length ? take_payload(client, next) : 1;
    if (there == 1) {
        client->commands[client->count++] = *next;
        next->copy = NULL;
        client->have = 0;
    }
    return there;
}

/* Everything that has come; 0 where the connection is over. */
static int serve(struct client *client) {
    int there = flush(client) ? negotiate(client) : -1;
    /* A client that does not read its replies is not read from. */
    while (there == 1 && client->length < LARGEST) {
        while (client->count < TOGETHER && (there = take_command(client)) == 1) {}
        if (!complete(client) || !flush(client)) return 0;
    }
    return there >= 0;
}

static void hang_up(struct client *client) {
    close(client->fd);
    for (size_t i = 0; i < client->count; i++) free(client->commands[i].copy);
    free(client->next.copy);
    free(client->output);
    free(client);
}

static void accept_all(int set, int listener) {
    struct {
        uint64_t nbdmagic, ihaveopt;
        uint16_t flags;
    } __attribute__((packed)) hello = {htobe64(NBDMAGIC), htobe64(IHAVEOPT), htobe16(3)};
    for (int fd; (fd = accept_next(listener)) >= 0;) {
        struct client *client = calloc(1, sizeof *client);
        if (!client) die("calloc");
        client->fd = fd;
        watch_fd(set, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLOUT | EPOLLET, client);
        if (!say_bytes(client, &hello, sizeof hello)) hang_up(client);
    }
}

static _Noreturn void usage(void) {
    fprintf(stderr, "usage: nbd_ram [-a ADDRESS] [-p PORT] [-m MEGABYTES] [-s (receive into memory first)]\n");
    exit(2);
}

static void parse(int argc, char **argv) {
    int port = 10809;
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    for (int option; (option = getopt(argc, argv, "a:p:m:s")) != -1;) {
        if (option == 'a' && inet_pton(AF_INET, optarg, &address.sin_addr) == 1) continue;
        if (option == 'p' && (port = atoi(optarg)) > 0 && port < 65536) continue;
        if (option == 'm' && (size = strtoull(optarg, NULL, 10) << 20) > 0 && size < (uint64_t)1 << 40) continue;
        if (option == 's' && (in_place = 0, 1)) continue;
        usage();
    }
    if (optind < argc) usage();
    address.sin_port = htons((uint16_t)port);
    in_place = in_place && toe_zc_take;
}

int main(int argc, char **argv) {
    parse(argc, argv);
    signal(SIGPIPE, SIG_IGN);
    disk = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (disk == MAP_FAILED) die("mmap");
    int listener = listen_at(&address, SOCK_NONBLOCK, 64, 0), set = epoll_create1(EPOLL_CLOEXEC);
    if (set < 0) die("epoll_create1");
    watch_fd(set, EPOLL_CTL_ADD, listener, EPOLLIN, NULL);
    struct epoll_event events[EVENTS];
    for (;;) {
        int n = epoll_wait(set, events, EVENTS, -1);
        if (n < 0 && errno != EINTR) die("epoll_wait");
        for (int i = 0; i < n; i++) {
            struct client *client = events[i].data.ptr;
            if (!client) accept_all(set, listener);
            else if (!serve(client)) hang_up(client);
        }
    }
}
