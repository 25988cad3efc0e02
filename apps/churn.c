/* churn: opens a connection to an echo server, sends a message, compares the reply, closes; so many times, one after
 * the other. Plain POSIX, identical for every stack. Prints one JSON object; exit status 1 if anything was wrong.
 */
#define _GNU_SOURCE
#include "program.h"

static struct sockaddr_in address = {.sin_family = AF_INET};

static void one(unsigned long number) {
    char message[64], reply[64];
    memset(message, (int)(number & 0xff), sizeof message);
    memcpy(message, &number, sizeof number);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) die("socket");
    if (connect(fd, (struct sockaddr *)&address, sizeof address) < 0) die("connect");
    send_or_die(fd, message, sizeof message);
    receive_or_die(fd, reply, sizeof reply);
    if (memcmp(message, reply, sizeof reply)) {
        fprintf(stderr, "churn: a wrong reply to message %lu\n", number);
        exit(1);
    }
    if (close(fd) < 0) die("close");
}

int main(int argc, char **argv) {
    long port = 7777;
    unsigned long count = 1000;
    for (int option; (option = getopt(argc, argv, "c:p:n:")) != -1;) {
        if (option == 'c' && inet_pton(AF_INET, optarg, &address.sin_addr) == 1) continue;
        if (option == 'p' && (port = atol(optarg)) > 0 && port < 65536) continue;
        if (option == 'n' && (count = strtoul(optarg, NULL, 10)) > 0) continue;
        fprintf(stderr, "usage: churn -c ADDRESS [-p PORT] [-n CONNECTIONS]\n");
        return 2;
    }
    address.sin_port = htons((unsigned short)port);
    uint64_t begin = now();
    for (unsigned long i = 0; i < count; i++) one(i);
    double seconds = (double)(now() - begin) / 1e9;
    printf("{\"connections\":%lu,\"seconds\":%.3f,\"per_second\":%.0f}\n", count, seconds, (double)count / seconds);
    return 0;
}
