/* large_receive: receives into memory of malloc, in one of several ways, and checks every byte.
 *
 * Plain POSIX, identical for every stack. Both sides make the bytes of a stream from a seed (word i is a mix of
 * seed + i). The receiver reports what came by its exit status and one line.
 */
#define _GNU_SOURCE
#include "program.h"
#include <poll.h>
#include <pthread.h>
#include <sys/uio.h>
#include <sys/wait.h>

static void *bytes_or_die(size_t length) {
    char *got = malloc(length + 64);
    if (!got) die("malloc");
    memset(got, 0x5a, length + 64);
    return got;
}

/* The bytes behind a receive's buffer are nobody's. */
static void check_behind(const char *got, size_t length) {
    for (size_t i = length; i < length + 64; i++)
        if (got[i] != 0x5a) errno = ERANGE, die("bytes behind the buffer were written");
}

static void on_signal(int number) {
    (void)number;
}

struct job {
    int fd, way;
    uint64_t seed, total;
    size_t size;
};

enum way { ALL, SOME, VECTOR, MESSAGE, TIMEOUT, SIGNAL, FORK, PEEK, POLL };
static const char *const names[] = {"all", "some", "vector", "message", "timeout", "signal", "fork", "peek", "poll"};

static ssize_t receive(const struct job *job, char *got, size_t length, uint64_t done) {
    struct iovec pieces[3] = {
        {got, length / 3}, {got + length / 3, length / 3}, {got + length / 3 * 2, length - length / 3 * 2}};
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = 3};
    struct pollfd ready = {.fd = job->fd, .events = POLLIN};
    switch ((enum way)job->way) {
    case ALL: return recv(job->fd, got, length, MSG_WAITALL);
    case SOME: return read(job->fd, got, length);
    case VECTOR: return readv(job->fd, pieces, 3);
    case MESSAGE: return recvmsg(job->fd, &message, MSG_WAITALL);
    case TIMEOUT: case SIGNAL: case FORK: return recv(job->fd, got, length, MSG_WAITALL);
    case PEEK: {
        ssize_t seen = recv(job->fd, got, least(length, 1000), MSG_PEEK);
        if (seen > 0) check_words(job->seed, done, got, (size_t)seen);
        return recv(job->fd, got, length, MSG_WAITALL);
    }
    case POLL:
        if (poll(&ready, 1, -1) < 0) return -1;
        return recv(job->fd, got, length, MSG_DONTWAIT);
    }
    return -1;
}

static void *run(void *argument) {
    struct job *job = argument;
    char *got = bytes_or_die(job->size);
    struct timeval soon = {.tv_usec = 2000};
    if (job->way == TIMEOUT && setsockopt(job->fd, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon) < 0) die("SO_RCVTIMEO");
    for (uint64_t done = 0; done < job->total;) {
        ssize_t n = receive(job, got, least(job->size, job->total - done), done);
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (n == 0) errno = 0;
        if (n <= 0) die("recv");
        check_words(job->seed, done, got, (size_t)n);
        check_behind(got, job->size);
        /* What lands after the call would be seen with the next bytes. */
        memset(got, 0x11, (size_t)n);
        done += (uint64_t)n;
    }
    /* With a time-out, the end may come later. */
    char end;
    ssize_t n;
    do n = recv(job->fd, &end, 1, 0);
    while (n < 0 && (errno == EINTR || errno == EAGAIN));
    if (n > 0) errno = EPROTO;
    if (n != 0) die("the end");
    free(got);
    close(job->fd);
    return NULL;
}

/* Interrupts the others while they receive, or makes children, which have copies of their own. */
static void disturb(int way, pthread_t *threads, int count) {
    for (int round = 0; round < 200; round++) {
        for (int i = 0; i < count && way == SIGNAL; i++) pthread_kill(threads[i], SIGUSR1);
        if (way == FORK && round % 20 == 0) {
            pid_t child = fork();
            if (child < 0) die("fork");
            if (child == 0) _exit(0);
            int status;
            if (waitpid(child, &status, 0) < 0 || status != 0) die("the child");
        }
        usleep(500);
    }
}

static void serve(const struct sockaddr_in *address, struct job order, int count) {
    int listener = listen_at(address, 0, 64, 0);
    struct job jobs[64];
    pthread_t threads[64];
    puts("ready");
    fflush(stdout);
    for (int i = 0; i < count; i++) {
        jobs[i] = order;
        jobs[i].fd = accept(listener, NULL, NULL);
        if (jobs[i].fd < 0) die("accept");
        receive_or_die(jobs[i].fd, &jobs[i].seed, sizeof jobs[i].seed);
        if ((errno = pthread_create(&threads[i], NULL, run, &jobs[i]))) die("pthread_create");
    }
    puts("begun");
    fflush(stdout);
    if (order.way == SIGNAL || order.way == FORK) disturb(order.way, threads, count);
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
    printf("%d streams of %llu bytes came whole\n", count, (unsigned long long)order.total);
}

static void *send_stream(void *argument) {
    struct job *job = argument;
    static const size_t words = 1 << 15;
    uint64_t *from = malloc(words * 8);
    if (!from) die("malloc");
    send_or_die(job->fd, &job->seed, sizeof job->seed);
    for (uint64_t done = 0; done < job->total;) {
        size_t length = least(words * 8, job->total - done);
        make_words(job->seed, done, from, words);
        /* Pauses let a receiver that waits find only a part of what it asked for. */
        if (job->way == TIMEOUT || job->way == SIGNAL) usleep(300);
        send_or_die(job->fd, from, length);
        done += length;
    }
    close(job->fd);
    free(from);
    return NULL;
}

static void call(const struct sockaddr_in *address, struct job order, int count) {
    struct job jobs[64];
    pthread_t threads[64];
    for (int i = 0; i < count; i++) {
        jobs[i] = order;
        jobs[i].seed = 77 + (uint64_t)i * 1000003;
        if ((jobs[i].fd = socket(AF_INET, SOCK_STREAM, 0)) < 0) die("socket");
        if (connect(jobs[i].fd, (const struct sockaddr *)address, sizeof *address) < 0) die("connect");
        if ((errno = pthread_create(&threads[i], NULL, send_stream, &jobs[i]))) die("pthread_create");
    }
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
}

int main(int argc, char **argv) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    struct job order = {.way = -1};
    if (argc == 8 && inet_pton(AF_INET, argv[2], &address.sin_addr) == 1) {
        address.sin_port = htons((uint16_t)atoi(argv[3]));
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            if (!strcmp(argv[4], names[i])) order.way = (int)i;
        order.total = strtoull(argv[5], NULL, 10);
        order.size = strtoull(argv[6], NULL, 10);
    }
    int count = argc == 8 ? atoi(argv[7]) : 0;
    if (order.way < 0 || count < 1 || count > 64 || !order.size) {
        fprintf(stderr, "usage: large_receive receive|send ADDRESS PORT "
                        "all|some|vector|message|timeout|signal|fork|peek|poll BYTES BUFFER STREAMS\n");
        return 2;
    }
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGUSR1, &action, NULL);
    (strcmp(argv[1], "send") ? serve : call)(&address, order, count);
    return 0;
}
