/* floor: how long a round trip between two programs on one core takes over a third one on another core, without any TCP.
 *
 * This is what one connection on OpenTOE comes down to: client and server share a core and let each other run
 * (sched_yield) while they wait; their messages go through shared memory to the daemon, which polls on a core of its
 * own and passes it on. Here the daemon does nothing but pass it on. -l gives the number of cache lines of each
 * message: one, or as a message on OpenTOE, four (the ring's position, a descriptor, the slot's state, the payload).
 * With -s the programs do not yield, but each has a core of its own, beside the relay's: three cores.
 */
#define _GNU_SOURCE
#include "load.h"
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { LINE = 64, MOST = 16 };

/* A direction: `published` is written last. Each word has a line of its own. */
struct way {
    _Alignas(LINE) volatile uint64_t published;
    struct { _Alignas(LINE) volatile uint64_t word; } more[MOST];
};

/* Client to relay, relay to server, server to relay, relay to client. */
static struct way *ways;
static long lines = 1;
static double seconds = 1, warm_up = 0.2;
static int spinning = 0;

static void publish(struct way *way, uint64_t value) {
    for (long i = 0; i < lines - 1; i++) way->more[i].word = value;
    __atomic_store_n(&way->published, value, __ATOMIC_RELEASE);
}

/* Whether a new value was published; takes all of it. */
static int poll_for(struct way *way, uint64_t value) {
    if (__atomic_load_n(&way->published, __ATOMIC_ACQUIRE) != value) return 0;
    for (long i = 0; i < lines - 1; i++)
        if (way->more[i].word != value) die("a line came late");
    return 1;
}

static void wait_for(struct way *way, uint64_t value, uint64_t *yields) {
    while (!poll_for(way, value)) {
        if (spinning) continue;
        sched_yield();
        ++*yields;
    }
}

static void pin(long core) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    if (sched_setaffinity(0, sizeof set, &set) < 0) die("sched_setaffinity");
}

/* Starts a process that ends with this one. */
static int child(long core) {
    pid_t pid = fork();
    if (pid < 0) die("fork");
    if (pid > 0) return 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    pin(core);
    return 1;
}

static void relay(void) {
    for (uint64_t up = 1, down = 1;;) {
        if (poll_for(&ways[0], up)) publish(&ways[1], up++);
        if (poll_for(&ways[2], down)) publish(&ways[3], down++);
    }
}

static void serve(void) {
    uint64_t yields = 0;
    for (uint64_t i = 1;; i++) {
        wait_for(&ways[1], i, &yields);
        publish(&ways[2], i);
    }
}

int main(int count, char **words) {
    long programs = 1, daemon = 0, server = -1;
    for (int option; (option = getopt(count, words, "l:t:w:p:d:s:")) >= 0;) {
        if (option == 'l') lines = atol(optarg);
        else if (option == 't') seconds = atof(optarg);
        else if (option == 'w') warm_up = atof(optarg);
        else if (option == 'p') programs = atol(optarg);
        else if (option == 'd') daemon = atol(optarg);
        else if (option == 's') server = atol(optarg);
        else lines = 0;
    }
    if (lines < 1 || lines > MOST || optind < count) {
        fprintf(stderr, "floor [-l lines 1..%d] [-t seconds] [-w warm-up] [-p core of the programs] [-d core of the "
                        "relay] [-s core of the server: none yields]\n", MOST);
        return 2;
    }
    spinning = server >= 0;
    ways = mmap(NULL, 4 * sizeof *ways, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (ways == MAP_FAILED) die("mmap");
    if (child(daemon)) relay();
    if (child(spinning ? server : programs)) serve();
    pin(programs);
    uint64_t yields = 0, before = 0;
    double cpu = cpu_seconds();
    say_begin(warm_up, seconds);
    for (uint64_t i = 1, time = now(); time < end_at; i++) {
        if (time < begin_at) before = yields;
        uint64_t started = time;
        publish(&ways[0], i);
        wait_for(&ways[3], i, &yields);
        time = now();
        record(started, time);
    }
    uint64_t seen = 0, half = 0;
    while (half < BUCKETS && (seen += histogram[half]) * 2 < counted) half++;
    fprintf(stderr, "%llu round trips, median %.2f us, %.2f yields of the client in each\n", (unsigned long long)counted,
            (double)bucket_ns(half) / 1e3, counted ? (double)(yields - before) / (double)counted : 0);
    return say_result(cpu_seconds() - cpu, NULL, 0);
}
