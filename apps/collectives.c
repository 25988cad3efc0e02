/* collectives: a collective operation of MPI between ranks, again and again; how long one takes.
 *
 * mpirun -np 2 collectives broadcast|all-reduce BYTES pages|heap WARM_UP SECONDS
 *
 * As nccl-tests have it: rounds of 20 operations after each other, and the time of one is the round's over 20. A
 * barrier ends a round within its time: a root may be done with a broadcast long before the others have it. Rank 0
 * prints "measuring" after the warm-up. In the end it prints one JSON object: operations, seconds, microseconds of an
 * operation (mean; median and 99th percentile over rounds), what that is in Gbit/s of BYTES, processor seconds of each
 * rank and the seconds in which they were spent (with what is between rounds), and how many numbers were wrong.
 * All-reduce is the sum of floats, out of place.
 *
 * The first and the last number of a buffer are others in each operation, and all ranks check them. All numbers are
 * written and checked in an operation before the first round, and in one after the last.
 *
 * pages: buffers of whole pages by posix_memalign, as the OSU micro-benchmarks have them, which OpenTOE's daemon maps;
 * heap: buffers by malloc, which it reaches through the kernel. */
#define _GNU_SOURCE
#include "program.h"
#include <mpi.h>

enum { IN_ROUND = 20, MOST_ROUNDS = 1 << 20, MOST_RANKS = 64 };

static int rank, ranks, reducing;
static size_t numbers;
static float *given, *taken;
static long operation_number, wrong;
static uint64_t rounds[MOST_ROUNDS]; /* nanoseconds of each */

/* All ones: no number that anybody gives. */
static float *memory(const char *kind, size_t bytes) {
    void *at;
    if (strcmp(kind, "heap") == 0)
        at = malloc(bytes);
    else if ((errno = posix_memalign(&at, (size_t)sysconf(_SC_PAGESIZE), bytes)))
        at = NULL;
    if (!at) die("a buffer");
    memset(at, 0xff, bytes);
    return at;
}

/* What a rank gives: small whole numbers, so that floats add up exactly. */
static float gives(int rank, size_t at) {
    return (float)((at * 7 + (size_t)operation_number * 13 + (size_t)rank * 31) % 1009);
}

/* What all have afterwards. */
static float expected(size_t at) {
    float sum = 0;
    for (int rank = 0; rank < (reducing ? ranks : 1); rank++) sum += gives(rank, at);
    return sum;
}

/* One operation, of which every `step`th number is written and checked, and the last one. */
static void operate(size_t step) {
    operation_number++;
    if (reducing || rank == 0) {
        for (size_t i = 0; i < numbers; i += step) given[i] = gives(rank, i);
        given[numbers - 1] = gives(rank, numbers - 1);
    }
    if (reducing)
        MPI_Allreduce(given, taken, (int)numbers, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    else
        MPI_Bcast(given, (int)numbers, MPI_FLOAT, 0, MPI_COMM_WORLD);
    for (size_t i = 0; i < numbers; i += step) wrong += taken[i] != expected(i);
    wrong += taken[numbers - 1] != expected(numbers - 1);
}

static uint64_t round_of_operations(void) {
    MPI_Barrier(MPI_COMM_WORLD);
    uint64_t begin = now();
    for (int i = 0; i < IN_ROUND; i++) operate(numbers);
    MPI_Barrier(MPI_COMM_WORLD);
    return now() - begin;
}

/* Rounds for some time, which rank 0 watches. Returns how many. */
static size_t run_for(double seconds) {
    uint64_t end = now() + (uint64_t)(seconds * 1e9);
    size_t done = 0;
    for (int more = 1; more; MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD)) {
        rounds[done++] = round_of_operations();
        more = now() < end && done < MOST_ROUNDS;
    }
    return done;
}

/* Processor time of this process and its threads. */
static double cpu_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int by_time(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* `cpu` has the processor seconds of each rank, spent in `elapsed` seconds. */
static void print_result(size_t done, double elapsed, const double *cpu, long bad) {
    uint64_t all = 0;
    for (size_t i = 0; i < done; i++) all += rounds[i];
    qsort(rounds, done, sizeof *rounds, by_time);
    double seconds = (double)all / 1e9, operations = (double)(done * IN_ROUND);
    double us = 1e6 / operations, each = 1e-3 / IN_ROUND, bits = (double)(numbers * sizeof *given) * 8;
    printf("{\"operation\": \"%s\", \"ranks\": %d, \"bytes\": %zu, \"operations\": %.0f, \"seconds\": %.6f, ",
           reducing ? "all-reduce" : "broadcast", ranks, numbers * sizeof *given, operations, seconds);
    printf("\"us\": %.3f, \"us_p50\": %.3f, \"us_p99\": %.3f, \"gbit_per_s\": %.4f, \"cpu_s\": [", seconds * us,
           (double)rounds[done / 2] * each, (double)rounds[done * 99 / 100] * each, operations * bits / seconds / 1e9);
    for (int rank = 0; rank < ranks; rank++) printf("%s%.4f", rank ? ", " : "", cpu[rank]);
    printf("], \"elapsed_s\": %.6f, \"wrong\": %ld}\n", elapsed, bad);
}

int main(int count, char **words) {
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    size_t bytes = count == 6 ? strtoul(words[2], NULL, 10) : 0;
    if (bytes < 4 || bytes % 4 || bytes > 1u << 30 || ranks < 2 || ranks > MOST_RANKS) {
        fprintf(stderr, "mpirun -np 2 collectives broadcast|all-reduce BYTES pages|heap WARM_UP SECONDS\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    reducing = strcmp(words[1], "all-reduce") == 0;
    numbers = bytes / sizeof *given;
    given = memory(words[3], bytes);
    taken = reducing ? memory(words[3], bytes) : given;

    operate(1);
    run_for(atof(words[4]));
    if (rank == 0) puts("measuring"), fflush(stdout);
    double cpu = cpu_seconds(), of_each[MOST_RANKS] = {0};
    uint64_t begin = now();
    size_t done = run_for(atof(words[5]));
    double elapsed = (double)(now() - begin) / 1e9;
    cpu = cpu_seconds() - cpu;
    operate(1);

    long bad = 0;
    MPI_Gather(&cpu, 1, MPI_DOUBLE, of_each, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    MPI_Allreduce(&wrong, &bad, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) print_result(done, elapsed, of_each, bad), fflush(stdout);
    MPI_Finalize();
    return bad != 0;
}
