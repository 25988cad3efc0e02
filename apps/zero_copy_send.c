/* zero_copy_send: sends memory of malloc with MSG_ZEROCOPY, in one of several ways, and uses each buffer again as soon
 * as Linux' rules allow it (Documentation/networking/msg_zerocopy.rst). The receiver checks every byte.
 *
 * Plain POSIX, identical for every stack. Both sides make the bytes of a stream from a seed (word i is a mix of
 * seed + i). The sender listens, and prints how many calls were by reference and how many were copied.
 */
#define _GNU_SOURCE
#include "program.h"
#include <linux/errqueue.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <sys/uio.h>
#include <sys/wait.h>

enum { BUFFERS = 4, SHORT = 64 };
enum way { WAIT, QUEUE, VECTOR, FREE, FORK };
static const char *const names[] = {"wait", "queue", "vector", "free", "fork"};

struct job {
    int fd, way;
    uint64_t seed, total;
    size_t size;
    unsigned calls, referred, copied;
    /* A short piece for each buffer, which stays as it is as long as the buffer does. */
    char *middle;
};

/* Takes one notice; false where there is none. Calls are over in their order. */
static int take_notice(struct job *job) {
    char control[256];
    struct msghdr message = {.msg_control = control, .msg_controllen = sizeof control};
    if (recvmsg(job->fd, &message, MSG_ERRQUEUE) < 0) {
        if (errno != EAGAIN) die("the error queue");
        return 0;
    }
    const struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    struct sock_extended_err error;
    if (!header || !(message.msg_flags & MSG_ERRQUEUE)) errno = EPROTO, die("a notice without its message");
    if (header->cmsg_level != SOL_IP || header->cmsg_type != IP_RECVERR) errno = EPROTO, die("another message");
    memcpy(&error, CMSG_DATA(header), sizeof error);
    unsigned done = job->referred + job->copied;
    if (error.ee_origin != SO_EE_ORIGIN_ZEROCOPY || error.ee_errno || error.ee_info != done ||
        error.ee_data < error.ee_info || error.ee_data >= job->calls)
        errno = EPROTO, die("a notice of other calls");
    *(error.ee_code & SO_EE_CODE_ZEROCOPY_COPIED ? &job->copied : &job->referred) += error.ee_data - error.ee_info + 1;
    return 1;
}

/* Waits until at most so many calls are not over. */
static void await(struct job *job, unsigned most) {
    while (job->calls - job->referred - job->copied > most) {
        struct pollfd error = {.fd = job->fd};
        if (take_notice(job)) continue;
        if (poll(&error, 1, -1) < 0) die("poll");
        if (!(error.revents & POLLERR)) errno = EPROTO, die("poll woke up for nothing");
    }
}

/* One call; the bytes that it took. */
static ssize_t send_some(struct job *job, char *from, size_t length) {
    /* A piece in between is short, and elsewhere. */
    size_t third = length / 3;
    size_t between = job->way == VECTOR && third > SHORT ? SHORT : 0;
    memcpy(job->middle, from + third, between);
    struct iovec pieces[3] = {
        {from, third}, {job->middle, between}, {from + third + between, length - third - between}};
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = 3};
    if (between) return sendmsg(job->fd, &message, MSG_ZEROCOPY | MSG_NOSIGNAL);
    return send(job->fd, from, length, MSG_ZEROCOPY | MSG_NOSIGNAL | (job->way == QUEUE ? MSG_DONTWAIT : 0));
}

static void send_all(struct job *job, char *from, size_t length) {
    for (size_t done = 0; done < length;) {
        ssize_t n = send_some(job, from + done, length - done);
        if (n < 0 && errno == ENOBUFS) {
            if (!take_notice(job)) usleep(100);
        } else if (n < 0 && errno == EAGAIN) {
            struct pollfd room = {.fd = job->fd, .events = POLLOUT};
            if (poll(&room, 1, -1) < 0) die("poll");
            while (take_notice(job)) continue;
        } else if (n <= 0) {
            die("send");
        } else {
            job->calls++;
            done += (size_t)n;
        }
    }
}

static void *run(void *argument) {
    struct job *job = argument;
    char *buffers[BUFFERS] = {0};
    unsigned over[BUFFERS] = {0};
    char middle[BUFFERS][SHORT];
    int one = 1;
    if (setsockopt(job->fd, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof one) < 0) die("SO_ZEROCOPY");
    send_or_die(job->fd, &job->seed, sizeof job->seed);
    unsigned round = 0;
    for (uint64_t done = 0; done < job->total; round++) {
        size_t length = least(job->size, job->total - done);
        int at = (int)(round % BUFFERS);
        char **buffer = &buffers[at];
        job->middle = middle[at];
        /* Its calls are over: then it may be written. */
        if (job->way != FREE && *buffer) await(job, job->calls - over[at]);
        if (!*buffer && !(*buffer = malloc(job->size))) die("malloc");
        memset(*buffer, 0xee, job->size);
        make_words(job->seed, done, (uint64_t *)*buffer, length / 8);
        send_all(job, *buffer, length);
        over[at] = job->calls;
        if (job->way == FREE) {
            free(*buffer), *buffer = NULL;
            /* Other memory in its place, if it were free: its pages are kept. */
            char *other = malloc(job->size);
            if (!other) die("malloc");
            memset(other, 0x77, job->size);
            free(other);
        }
        if (job->way == FORK && round % 8 == 0) {
            pid_t child = fork();
            if (child < 0) die("fork");
            if (child == 0) _exit(0);
            int status;
            if (waitpid(child, &status, 0) < 0 || status != 0) die("the child");
        }
        done += length;
    }
    /* Who frees without waiting closes so, too. */
    if (job->way != FREE) await(job, 0);
    close(job->fd);
    for (int at = 0; at < BUFFERS; at++) free(buffers[at]);
    return NULL;
}

static void serve(const struct sockaddr_in *address, struct job order, int count) {
    int listener = listen_at(address, 0, 64, 0);
    struct job jobs[64];
    pthread_t threads[64];
    unsigned calls = 0, referred = 0, copied = 0;
    puts("ready");
    fflush(stdout);
    for (int i = 0; i < count; i++) {
        jobs[i] = order;
        jobs[i].seed = 77 + (uint64_t)i * 1000003;
        if ((jobs[i].fd = accept(listener, NULL, NULL)) < 0) die("accept");
        if ((errno = pthread_create(&threads[i], NULL, run, &jobs[i]))) die("pthread_create");
    }
    puts("begun");
    fflush(stdout);
    for (int i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
        calls += jobs[i].calls, referred += jobs[i].referred, copied += jobs[i].copied;
    }
    printf("%u calls: %u by reference, %u copied\n", calls, referred, copied);
}

static void *receive(void *argument) {
    struct job *job = argument;
    char *got = malloc(job->size);
    if (!got) die("malloc");
    receive_or_die(job->fd, &job->seed, sizeof job->seed);
    for (uint64_t done = 0; done < job->total;) {
        ssize_t n = recv(job->fd, got, least(job->size, job->total - done), 0);
        if (n < 0 && errno == EINTR) continue;
        if (n == 0) errno = 0;
        if (n <= 0) die("recv");
        check_words(job->seed, done, got, (size_t)n);
        done += (uint64_t)n;
    }
    char end;
    if (recv(job->fd, &end, 1, 0) != 0) errno = EPROTO, die("the end");
    free(got);
    close(job->fd);
    return NULL;
}

static void call(const struct sockaddr_in *address, struct job order, int count) {
    struct job jobs[64];
    pthread_t threads[64];
    for (int i = 0; i < count; i++) {
        jobs[i] = order;
        if ((jobs[i].fd = socket(AF_INET, SOCK_STREAM, 0)) < 0) die("socket");
        if (connect(jobs[i].fd, (const struct sockaddr *)address, sizeof *address) < 0) die("connect");
        if ((errno = pthread_create(&threads[i], NULL, receive, &jobs[i]))) die("pthread_create");
    }
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
    printf("%d streams of %llu bytes came whole\n", count, (unsigned long long)order.total);
}

int main(int argc, char **argv) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    struct job order = {.way = -1};
    /* Freed memory is unmapped, not used again by the C library. */
    mallopt(M_MMAP_THRESHOLD, 128 << 10);
    if (argc == 8 && inet_pton(AF_INET, argv[2], &address.sin_addr) == 1) {
        address.sin_port = htons((uint16_t)atoi(argv[3]));
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            if (!strcmp(argv[4], names[i])) order.way = (int)i;
        order.total = strtoull(argv[5], NULL, 10);
        order.size = strtoull(argv[6], NULL, 10);
    }
    int count = argc == 8 ? atoi(argv[7]) : 0;
    if (order.way < 0 || count < 1 || count > 64 || order.size < 8 || order.size % 8) {
        fprintf(stderr, "usage: zero_copy_send send|receive ADDRESS PORT wait|queue|vector|free|fork BYTES BUFFER "
                        "STREAMS\n");
        return 2;
    }
    (strcmp(argv[1], "receive") ? serve : call)(&address, order, count);
    return 0;
}
