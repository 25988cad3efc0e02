/* load.h: what the programs that make load have in common: the CPU's clock, a histogram, and how they report.
 *
 * They print two lines. The first, once all connections are there, has the begin of measuring, in nanoseconds of
 * CLOCK_MONOTONIC, so that their parent can measure other processes meanwhile. The second is the result; its
 * histogram is pairs of nanoseconds and count, so that the results of several clients can be added up.
 */
#ifndef LOAD_H
#define LOAD_H

#include "program.h"
#include <sys/resource.h>

enum { SUB = 128, SUB_BITS = 7, BUCKETS = 60 * SUB };

static uint64_t begin_at = 0, end_at = 0;
static uint64_t counted = 0, errors = 0, wrong = 0, late = 0;
static uint64_t histogram[BUCKETS], slowest = 0;

static inline double cpu_seconds(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

/* Log-linear: SUB buckets per power of two, so each bucket is at most 0.8% wide. */
static inline size_t bucket_of(uint64_t ns) {
    if (ns < SUB) return ns;
    int shift = 63 - __builtin_clzll(ns) - SUB_BITS;
    size_t bucket = (size_t)(shift + 1) * SUB + ((ns >> shift) - SUB);
    return bucket < BUCKETS ? bucket : BUCKETS - 1;
}

/* The middle of a bucket. */
static inline uint64_t bucket_ns(size_t bucket) {
    if (bucket < SUB) return bucket;
    size_t shift = bucket / SUB - 1;
    return ((uint64_t)(bucket % SUB + SUB) << shift) + ((uint64_t)1 << shift) / 2;
}

/* Counts what was answered while measuring; returns whether it was. */
static inline int record(uint64_t started, uint64_t time) {
    if (time < begin_at || time > end_at) return 0;
    uint64_t latency = time - started;
    counted++;
    histogram[bucket_of(latency)]++;
    if (latency > slowest) slowest = latency;
    return 1;
}

/* All connections are there: measuring begins after `warm_up` seconds, or at `begin_at` where that is set. */
static inline void say_begin(double warm_up, double seconds) {
    uint64_t connected = now();
    if (!begin_at) begin_at = connected + (uint64_t)(warm_up * 1e9);
    else late = connected > begin_at;
    end_at = begin_at + (uint64_t)(seconds * 1e9);
    printf("{\"begin_ns\":%llu,\"end_ns\":%llu}\n", (unsigned long long)begin_at, (unsigned long long)end_at);
    fflush(stdout);
}

/* The result; `counts` of each connection may be missing. Returns the exit status. */
static inline int say_result(double cpu, const uint64_t *counts, long connections) {
    printf("{\"seconds\":%.6f,\"ops\":%llu,\"max_ns\":%llu,\"cpu_s\":%.3f,\"errors\":%llu,\"wrong\":%llu,\"late\":%llu,"
           "\"per_connection\":[", (double)(end_at - begin_at) / 1e9, (unsigned long long)counted,
           (unsigned long long)slowest, cpu, (unsigned long long)errors, (unsigned long long)wrong,
           (unsigned long long)late);
    for (long i = 0; counts && i < connections; i++) printf("%s%llu", i ? "," : "", (unsigned long long)counts[i]);
    printf("],\"histogram\":[");
    for (size_t i = 0, printed = 0; i < BUCKETS; i++)
        if (histogram[i])
            printf("%s[%llu,%llu]", printed++ ? "," : "", (unsigned long long)bucket_ns(i),
                   (unsigned long long)histogram[i]);
    printf("]}\n");
    return errors || wrong || late;
}

#endif
