/* log_record.h: what log_client writes and log_server expects: 64-bit words in host order; both run on one machine. */
#ifndef LOG_RECORD_H
#define LOG_RECORD_H

#include "program.h"

static inline uint64_t word_of(uint64_t client, uint64_t number, size_t at) {
    return at == 0 ? client : at == 1 ? number : mix(mix(client) + (number << 16) + at);
}

static inline void make_record(uint64_t *words, size_t size, uint64_t client, uint64_t number) {
    for (size_t at = 0; at < size / 8; at++) words[at] = word_of(client, number, at);
}

static inline int is_record(const uint64_t *words, size_t size, uint64_t client, uint64_t number) {
    for (size_t at = 0; at < size / 8; at++)
        if (words[at] != word_of(client, number, at)) return 0;
    return 1;
}

#endif
