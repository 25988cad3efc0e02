/* Cases about addresses that are bad: calls return EFAULT, and nothing has happened. */
#ifndef POSIX_ADDRESSES_H
#define POSIX_ADDRESSES_H

#include "ends.h"

#include <setjmp.h>
#include <sys/resource.h>

#define BAD(call) CHECK((call) == -1 && errno == EFAULT)

static char *bad_page(int kind) {
    long page = sysconf(_SC_PAGESIZE);
    char *at = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    /* The first page stays, so that buffers may begin in it. */
    CHECK((kind ? mprotect(at + page, page, kind == 1 ? PROT_NONE : PROT_READ) : munmap(at + page, page)) == 0);
    return at + page;
}

/* A socket is for IPv6 alone where it is set so, or is bound to one address of IPv6; that is settled with its port. */
static void for_one_family(void) {
#ifdef V6
    int on = 1, off = 0, value = -1, e[2];
    socklen_t len = sizeof value;
    Address v4 = here;
    CHECK(inet_pton(AF_INET6, "::ffff:127.0.0.1", &v4.sin6_addr) == 1);
    v4.sin6_port = htons(1);
    int s = socket(AF_INET6, SOCK_STREAM, 0);
    CHECK(setsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on) == 0);
    CHECK(bind(s, (void *)&v4, sizeof v4) < 0 && errno == EINVAL);
    CHECK(connect(s, (void *)&v4, sizeof v4) < 0 && errno == ENETUNREACH);
    CHECK(setsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) == 0);
    CHECK(bind(s, (void *)&here, sizeof here) == 0);
    CHECK(getsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &value, &len) == 0 && value == 1);
    CHECK(setsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) < 0 && errno == EINVAL);
    CHECK(connect(s, (void *)&v4, sizeof v4) < 0 && errno == ENETUNREACH);
    close(s);
    pair(e);
    CHECK(getsockopt(e[0], IPPROTO_IPV6, IPV6_V6ONLY, &value, &len) == 0 && value == 0);
    CHECK(getsockopt(e[1], IPPROTO_IPV6, IPV6_V6ONLY, &value, &len) == 0 && value == 1);
    CHECK(setsockopt(e[0], IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on) < 0 && errno == EINVAL);
    unpair(e);
    /* A listener on an address of IPv4 that was shut down and bound to any address again connects to both families.
     * The address is one of the host: a socket that is bound to a loopback address may be the kernel's alone. */
    int listener = socket(AF_INET6, SOCK_STREAM, 0);
    Address any = here, to;
    const char *own = getenv("OWN_V4");
    char mapped[INET6_ADDRSTRLEN];
    snprintf(mapped, sizeof mapped, "::ffff:%s", own ? own : "127.0.0.1");
    CHECK(inet_pton(AF_INET6, mapped, &v4.sin6_addr) == 1);
    len = sizeof to;
    any.sin6_addr = in6addr_any, any.sin6_port = 0, v4.sin6_port = 0;
    CHECK(bind(listener, (void *)&here, sizeof here) == 0 && listen(listener, 1) == 0);
    CHECK(getsockname(listener, (void *)&to, &len) == 0);
    s = socket(AF_INET6, SOCK_STREAM, 0);
    CHECK(bind(s, (void *)&v4, sizeof v4) == 0 && listen(s, 1) == 0 && shutdown(s, SHUT_RDWR) == 0);
    CHECK(bind(s, (void *)&any, sizeof any) == 0 && connect(s, (void *)&to, sizeof to) == 0);
    close(s), close(listener);
#endif
}

static char *bad_addresses[8];
static int bad_count;

static void find_bad_addresses(void) {
    if (bad_count) return;
    bad_addresses[bad_count++] = NULL;
    bad_addresses[bad_count++] = (char *)8;
    bad_addresses[bad_count++] = (char *)-1;
    bad_addresses[bad_count++] = (char *)0xffff800000000000;
    bad_addresses[bad_count++] = (char *)0x0000900000000000;
    bad_addresses[bad_count++] = bad_page(0);
    bad_addresses[bad_count++] = bad_page(1);
}

static void arrives(int fd, int wanted) {
    for (int got = 0; got < wanted; usleep(100)) CHECK(ioctl(fd, FIONREAD, &got) == 0);
}

static const int lengths[] = {1, 3, 4, 7, 8, 15, 16, 31, 32, 33, 50, 64, 65, 500, 5000};

/* Bytes that cannot be put anywhere stay where they are. */
static void reads_to(int e[2], char *bad, int len) {
    static char given[5000], got[5000];
    struct iovec one = {bad, len}, two[2] = {{got, len / 2}, {bad, len}};
    struct msghdr message = {.msg_iov = &one, .msg_iovlen = 1};
    for (int i = 0; i < len; i++) given[i] = (char)(i * 7 + len);
    CHECK(write(e[0], given, len) == len);
    arrives(e[1], len);
    BAD(read(e[1], bad, len));
    BAD(recv(e[1], bad, len, MSG_DONTWAIT));
    BAD(recv(e[1], bad, len, MSG_PEEK));
    BAD(recvfrom(e[1], bad, len, 0, NULL, NULL));
    BAD(readv(e[1], &one, 1));
    BAD(recvmsg(e[1], &message, 0));
    if (len > 1 && len <= 500) BAD(readv(e[1], two, 2));
    CHECK(recv(e[1], got, len, MSG_WAITALL) == len && memcmp(got, given, len) == 0);
}

static void writes_from(int e[2], char *bad, int len) {
    char got[2];
    struct iovec one = {bad, len};
    struct msghdr message = {.msg_iov = &one, .msg_iovlen = 1};
    BAD(write(e[0], bad, len));
    BAD(send(e[0], bad, len, MSG_NOSIGNAL));
    BAD(sendto(e[0], bad, len, 0, NULL, 0));
    BAD(writev(e[0], &one, 1));
    BAD(sendmsg(e[0], &message, 0));
    CHECK(write(e[0], "x", 1) == 1 && read(e[1], got, 2) == 1 && *got == 'x');
}

static void lists(int e[2], char *bad) {
    char space[64];
    struct iovec piece = {space, sizeof space};
    struct msghdr message = {.msg_iov = (void *)bad, .msg_iovlen = 1};
    struct mmsghdr several = {.msg_hdr = {.msg_iov = &piece, .msg_iovlen = 1}};
    CHECK(write(e[0], "y", 1) == 1);
    arrives(e[1], 1);
    BAD(readv(e[1], (void *)bad, 1));
    BAD(writev(e[1], (void *)bad, 1));
    BAD(recvmsg(e[1], (void *)bad, 0));
    BAD(sendmsg(e[1], (void *)bad, 0));
    BAD(recvmsg(e[1], &message, 0));
    BAD(sendmsg(e[1], &message, 0));
    BAD(recvmmsg(e[1], (void *)bad, 1, 0, NULL));
    BAD(sendmmsg(e[1], (void *)bad, 1, 0));
    CHECK(recvmmsg(e[1], &several, 1, 0, NULL) == 1 && *space == 'y');
}

/* The first buffer of a list can be read, the next one cannot: nothing is moved. */
static void list_that_ends_badly(int e[2]) {
    char space[2] = "l";
    struct iovec *list = (struct iovec *)bad_page(1) - 1;
    struct msghdr message = {.msg_iov = list, .msg_iovlen = 2};
    *list = (struct iovec){space, 1};
    BAD(writev(e[0], list, 2));
    BAD(sendmsg(e[0], &message, 0));
    CHECK(write(e[0], "z", 1) == 1);
    arrives(e[1], 1);
    BAD(readv(e[1], list, 2));
    BAD(recvmsg(e[1], &message, 0));
    CHECK(read(e[1], space, 2) == 1 && *space == 'z' && recv(e[1], space, 1, MSG_DONTWAIT) < 0);
}

static void names_at(int e[2], char *bad) {
    Address name;
    socklen_t len = sizeof name;
    int value = 1, file = memfd_create("file", MFD_CLOEXEC);
    BAD(getsockname(e[0], (void *)bad, &len));
    BAD(getpeername(e[0], (void *)bad, &len));
    BAD(getsockname(e[0], (void *)&name, (void *)bad));
    BAD(getpeername(e[0], (void *)&name, (void *)bad));
    BAD(setsockopt(e[0], SOL_SOCKET, SO_KEEPALIVE, bad, sizeof value));
    len = sizeof value;
    BAD(getsockopt(e[0], SOL_SOCKET, SO_KEEPALIVE, bad, &len));
    BAD(getsockopt(e[0], SOL_SOCKET, SO_KEEPALIVE, &value, (void *)bad));
    BAD(getsockopt(e[0], IPPROTO_TCP, TCP_INFO, bad, &len));
    BAD(ioctl(e[0], FIONREAD, bad));
    BAD(ioctl(e[0], FIONBIO, bad));
    if (bad) BAD(sendfile(e[0], file, (void *)bad, 1));
    close(file);
    int fresh = socket(FAMILY, SOCK_STREAM, 0);
    BAD(bind(fresh, (void *)bad, sizeof name));
    BAD(connect(fresh, (void *)bad, sizeof name));
    close(fresh);
}

/* A connection whose peer's name cannot be returned is closed, and the next one is fine. */
static void accepts_at(char *bad) {
    Address name;
    socklen_t len = sizeof name;
    char byte;
    int l = listener(0), one = socket(FAMILY, SOCK_STREAM, 0), two = socket(FAMILY, SOCK_STREAM, 0), accepted;
    show_interest(l);
    name = name_of(l);
    CHECK(connect(one, (void *)&name, sizeof name) == 0);
    if (bad) {
        BAD(accept(l, (void *)bad, &len));
    } else {
        BAD(accept(l, (void *)&name, NULL));
    }
    CHECK(read(one, &byte, 1) <= 0);
    show_interest(l);
    name = name_of(l);
    CHECK(connect(two, (void *)&name, sizeof name) == 0);
    CHECK((accepted = accept(l, NULL, (void *)bad)) >= 0);
    close(accepted), close(one), close(two), close(l);
}

static void waits_at(int e[2], char *bad) {
    int set = epoll_create1(0);
    char byte;
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u64 = 3};
    BAD(epoll_ctl(set, EPOLL_CTL_ADD, e[1], (void *)bad));
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, e[1], &event) == 0);
    BAD(epoll_ctl(set, EPOLL_CTL_MOD, e[1], (void *)bad));
    if ((uintptr_t)bad < 1ul << 47) CHECK(epoll_wait(set, (void *)bad, 1, 0) == 0);
    CHECK(write(e[0], "z", 1) == 1);
    arrives(e[1], 1);
    BAD(epoll_wait(set, (void *)bad, 1, 1000));
    /* The edge is still there. */
    CHECK(epoll_wait(set, &event, 1, 1000) == 1 && event.data.u64 == 3);
    CHECK(epoll_wait(set, &event, 1, 0) == 0);
    CHECK(epoll_ctl(set, EPOLL_CTL_DEL, e[1], (void *)bad) == 0);
    close(set);
    BAD(poll((void *)bad, 1, 0));
    if (bad) BAD(select(e[1] + 1, (void *)bad, NULL, NULL, NULL));
    CHECK(read(e[1], &byte, 1) == 1);
}

/* What fits in front of a bad page is read, and a page that can be read only can be sent from. */
static void pages(int e[2]) {
    char *behind = bad_page(1), *constant = bad_page(2), got[200];
    CHECK(write(e[0], memset(got, 'a', 200), 100) == 100);
    arrives(e[1], 100);
    BAD(read(e[1], behind - 50, 100));
    BAD(read(e[1], behind - 99, 100));
    BAD(read(e[1], constant, 100));
    CHECK(read(e[1], behind - 50, 50) == 50 && read(e[1], behind - 50, 4000) == 50 && behind[-1] == 'a');
    CHECK(write(e[0], constant, 100) == 100 && recv(e[1], got, 100, MSG_WAITALL) == 100 && got[99] == 0);
    CHECK(write(e[0], behind - 70, 70) == 70 && recv(e[1], got, 70, MSG_WAITALL) == 70 && got[69] == 'a');
}

static void *write_one_later(void *fd) {
    usleep(50000);
    CHECK(write(*(int *)fd, "w", 1) == 1);
    return NULL;
}

/* A call that sleeps until there is something to read. */
static void sleeps_at(int e[2], char *bad) {
    pthread_t thread;
    char byte;
    if ((uintptr_t)bad < 1ul << 47) {
        CHECK(pthread_create(&thread, NULL, write_one_later, &e[0]) == 0);
        BAD(recv(e[1], bad, 1, 0));
        CHECK(pthread_join(thread, NULL) == 0 && read(e[1], &byte, 1) == 1);
    } else if ((intptr_t)bad < 0) {
        BAD(recv(e[1], bad, 1, 0));
    }
}

static sigjmp_buf out_of_fault;
static volatile int own_faults;
static void *volatile fault_at;

static void on_fault(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    own_faults++, fault_at = info->si_addr;
    siglongjmp(out_of_fault, 1);
}

/* The program's own faults are its own business: its handlers run, once where it asks so, and it may die of them. */
static void own_handlers(void) {
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_RESETHAND}, seen;
    int e[2], status;
    char *bad = bad_addresses[5];
    pair(e);
    own_faults = 0;
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
    BAD(write(e[0], bad, 100));
    CHECK(sigaction(SIGSEGV, NULL, &seen) == 0 && seen.sa_sigaction == on_fault && seen.sa_flags & SA_RESETHAND);
    if (sigsetjmp(out_of_fault, 1) == 0) *(volatile char *)bad = 1;
    CHECK(own_faults == 1 && fault_at == bad);
    CHECK(sigaction(SIGSEGV, NULL, &seen) == 0 && seen.sa_handler == SIG_DFL);
    BAD(write(e[0], bad, 100));
    for (int how = 0; how < 4; how++) {
        pid_t child = fork();
        if (child == 0) {
            struct rlimit none = {0, 0};
            setrlimit(RLIMIT_CORE, &none);
            if (how == 1) signal(SIGSEGV, SIG_IGN);
            if (how == 2) raise(SIGSEGV);
            if (how == 3) signal(SIGSEGV, SIG_IGN), raise(SIGSEGV), _exit(7);
            *(volatile char *)bad = 1;
            _exit(8);
        }
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(how == 3 ? WIFEXITED(status) && WEXITSTATUS(status) == 7 : WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    }
    CHECK(signal(SIGBUS, _exit) == SIG_DFL && signal(SIGBUS, SIG_DFL) == _exit);
    unpair(e);
}

static void addresses(void) {
    int e[2];
    find_bad_addresses();
    pair(e);
    for (int i = 0; i < bad_count; i++) {
        for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
            reads_to(e, bad_addresses[i], lengths[l]);
            writes_from(e, bad_addresses[i], lengths[l]);
        }
        lists(e, bad_addresses[i]);
        names_at(e, bad_addresses[i]);
        accepts_at(bad_addresses[i]);
        waits_at(e, bad_addresses[i]);
        sleeps_at(e, bad_addresses[i]);
    }
    pages(e);
    list_that_ends_badly(e);
    unpair(e);
    own_handlers();
}

#endif
