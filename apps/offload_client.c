/* A client of offload functions: an ordinary program of verbs. It compares what offload/ has with what one-sided verbs
 * read from the memory of offload_host, and measures both.
 *
 * offload_client ADDRESS PORT VERBS_PORT check              every example, compared; prints what it found
 * offload_client ADDRESS PORT VERBS_PORT call OPCODE HEX    one call; prints status and response
 * offload_client ADDRESS PORT VERBS_PORT until COUNT        list traversals, compared, until one fails or so many
 * offload_client ADDRESS PORT VERBS_PORT written COUNT [FAULT]    batched READs whose responses are written to memory
 *     here, compared, until one fails. FAULT: half way, requests name another key (key), memory beyond the region
 *     (range), or a region that is not for it (right); or the region is deregistered (gone). Memory must stay as it is.
 * offload_client ADDRESS PORT VERBS_PORT versions A B       calls the opcodes A and B in turn until its input ends. Each
 *     answer has its function's version, 1 or 2, and what that version makes of the call. Prints how many each gave
 * offload_client ADDRESS PORT VERBS_PORT list WAY HOPS SECONDS    latency; WAY: offload, verbs
 * offload_client ADDRESS PORT VERBS_PORT reads WAY BATCH SECONDS  throughput of 64-byte reads
 * VERBS_PORT is 0 where there is no offload_host: then "call" only, with numbers.
 * HEX are numbers of 8 bytes each, of which @list, @block, @table and @append stand for addresses. */
#define _GNU_SOURCE
#include "load.h"
#define OFFLOAD_NO_FUNCTIONS
#include "../include/offload.h"
#include "offload_memory.h"
#include "verbs.h"
#include <poll.h>

enum { LIST = 0x10, READS = 0x11, GET = 0x12, CRC = 0x13, APPEND = 0x14, READS_TO = 0x15 };
enum { DEPTH = 16, BATCH = 512, WARM_UP_MS = 200 };

/* A connection. Each of its messages has room for a request and a response. */
struct peer {
    struct rdma_cm_id *id;
    struct ibv_cq *cq;
    struct ibv_mr *mr;
    uint8_t (*requests)[OFFLOAD_REQUEST_BYTES];
    uint8_t (*responses)[OFFLOAD_RESPONSE_BYTES];
    uint32_t receives; /* posted */
    struct shown shown;
};

static struct rdma_event_channel *channel;

static void post_receive(struct peer *peer) {
    uint32_t slot = peer->receives++ % DEPTH;
    struct ibv_sge sge = {(uintptr_t)peer->responses[slot], OFFLOAD_RESPONSE_BYTES, peer->mr->lkey};
    struct ibv_recv_wr request = {.wr_id = slot, .sg_list = &sge, .num_sge = 1}, *bad;
    if (ibv_post_recv(peer->id->qp, &request, &bad)) die("ibv_post_recv");
}

static void connect_to(struct peer *peer, const char *address, const char *port) {
    size_t bytes = DEPTH * (OFFLOAD_REQUEST_BYTES + OFFLOAD_RESPONSE_BYTES);
    uint8_t *memory;

    if (!channel && !(channel = rdma_create_event_channel())) die("rdma_create_event_channel");
    peer->id = reach(channel, address, port);
    struct ibv_pd *pd = ibv_alloc_pd(peer->id->verbs);
    if (!pd || !(memory = aligned_alloc(4096, bytes))) die("memory");
    memset(memory, 0, bytes);
    if (!(peer->mr = ibv_reg_mr(pd, memory, bytes, IBV_ACCESS_LOCAL_WRITE))) die("ibv_reg_mr");
    peer->requests = (void *)memory;
    peer->responses = (void *)(memory + DEPTH * OFFLOAD_REQUEST_BYTES);
    peer->cq = ibv_create_cq(peer->id->verbs, 4 * DEPTH, NULL, NULL, 0);
    struct ibv_qp_init_attr attr = {.send_cq = peer->cq, .recv_cq = peer->cq, .qp_type = IBV_QPT_RC,
                                    .cap = {DEPTH, DEPTH, 1, 1, 0}};
    if (!peer->cq || rdma_create_qp(peer->id, pd, &attr)) die("rdma_create_qp");
    for (int i = 0; i < DEPTH; i++) post_receive(peer);
    establish(channel, peer->id, &peer->shown, sizeof peer->shown);
}

/* While a response is awaited, only connection management reports the connection's end. */
static void look_for_the_end(void) {
    struct pollfd fd = {.fd = channel->fd, .events = POLLIN};
    if (poll(&fd, 1, 0) == 1) rdma_ack_cm_event(expect(channel, RDMA_CM_EVENT_ESTABLISHED));
}

static struct ibv_wc completed(struct peer *peer) {
    struct ibv_wc wc;
    int found;
    for (unsigned round = 1; !(found = ibv_poll_cq(peer->cq, 1, &wc)); round++)
        if (round % 4096 == 0) look_for_the_end();
    if (found < 0 || wc.status != IBV_WC_SUCCESS) {
        fprintf(stderr, "offload_client: %s\n", found < 0 ? "the daemon has gone" : ibv_wc_status_str(wc.status));
        exit(3);
    }
    return wc;
}

/* Sends the request in a slot. */
static void ask(struct peer *peer, uint32_t slot, uint32_t opcode, size_t size) {
    struct ibv_sge sge = {(uintptr_t)peer->requests[slot], (uint32_t)size, peer->mr->lkey};
    struct ibv_send_wr request = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND_WITH_IMM,
                                  .send_flags = IBV_SEND_SIGNALED,
                                  .imm_data = htonl(OFFLOAD_REQUEST(opcode, slot))}, *bad;
    if (ibv_post_send(peer->id->qp, &request, &bad)) die("ibv_post_send");
}

/* The next response: its completion. The caller posts its memory again. */
static struct ibv_wc response(struct peer *peer) {
    for (;;) {
        struct ibv_wc wc = completed(peer);
        if (wc.opcode == IBV_WC_RECV) return wc;
    }
}

/* A call: its status, and where its response is until the next call. */
static uint32_t call(struct peer *peer, uint32_t opcode, const void *bytes, size_t size, uint8_t **at, uint32_t *len) {
    memcpy(peer->requests[0], bytes, size);
    ask(peer, 0, opcode, size);
    struct ibv_wc wc = response(peer);
    if (OFFLOAD_TAG(ntohl(wc.imm_data)) != 0) wrong++;
    *at = peer->responses[wc.wr_id], *len = wc.byte_len;
    post_receive(peer);
    return OFFLOAD_STATUS(ntohl(wc.imm_data));
}

static void post_read(struct peer *peer, uint32_t rkey, uint64_t from, void *to, size_t size) {
    struct ibv_sge sge = {(uintptr_t)to, (uint32_t)size, peer->mr->lkey};
    struct ibv_send_wr request = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_READ,
                                  .send_flags = IBV_SEND_SIGNALED}, *bad;
    request.wr.rdma.remote_addr = from, request.wr.rdma.rkey = rkey;
    if (ibv_post_send(peer->id->qp, &request, &bad)) die("ibv_post_send");
}

static void read_host(struct peer *verbs, uint64_t from, void *to, size_t size) {
    post_read(verbs, verbs->shown.rkey, from, verbs->responses[0], size);
    completed(verbs);
    memcpy(to, verbs->responses[0], size);
}

/* Traverses the list with one-sided verbs. */
static void traverse(struct peer *verbs, uint64_t key, uint8_t *value) {
    struct list_element element;
    for (uint64_t at = verbs->shown.list; at; at = element.next) {
        read_host(verbs, at, &element, sizeof element);
        if (element.key == key) return read_host(verbs, element.value, value, VALUE_BYTES);
    }
    wrong++;
}

static int is_value(const uint8_t *value, uint64_t key) {
    for (int at = 0; at < VALUE_BYTES; at++)
        if (value[at] != value_byte(key, at)) return 0;
    return 1;
}

/* Traverses the list with the offload function, and compares. */
static uint32_t list(struct peer *peer, uint64_t first, uint64_t key) {
    uint64_t request[2] = {first, key};
    uint8_t *value;
    uint32_t len, status = call(peer, LIST, request, sizeof request, &value, &len);
    if (status == OFFLOAD_OK && (len != VALUE_BYTES || !is_value(value, key))) wrong++;
    return status;
}

static uint32_t crc_of(uint64_t from, uint64_t size) {
    uint32_t sum = ~0u;
    for (uint64_t at = 0; at < size; at++) {
        sum ^= block_byte(from + at);
        for (int bit = 0; bit < 8; bit++) sum = sum & 1 ? 0xedb88320u ^ sum >> 1 : sum >> 1;
    }
    return ~sum;
}

static void show(const char *what, int right) {
    printf("%s %s\n", what, right ? "right" : "WRONG");
    wrong += !right;
}

static void check(struct peer *peer, struct peer *verbs) {
    const struct shown *shown = &verbs->shown;
    uint8_t value[VALUE_BYTES], *at;
    uint32_t len, keys[] = {1, 2, 5, 9, ELEMENTS};
    int right = 1;

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        traverse(verbs, keys[i], value);
        right &= is_value(value, keys[i]) && list(peer, shown->list, keys[i]) == OFFLOAD_OK;
    }
    show("list", right && list(peer, shown->list, ELEMENTS + 1) == 1);
    uint64_t pieces[100][2], sum = 0;
    for (uint64_t i = 0; i < 100; i++) pieces[i][0] = shown->block + i * 7919, sum += pieces[i][1] = i * 7;
    right = call(peer, READS, pieces, sizeof pieces, &at, &len) == OFFLOAD_OK && len == sum;
    for (uint64_t i = 0; i < 100; i++)
        for (uint64_t byte = 0; byte < i * 7; byte++) right &= *at++ == block_byte(i * 7919 + byte);
    show("reads", right);
    right = 1;
    for (uint64_t key = 1; key <= ELEMENTS + 1; key++) {
        uint64_t request[2] = {shown->table, key};
        uint32_t status = call(peer, GET, request, sizeof request, &at, &len);
        right &= key <= ELEMENTS ? status == OFFLOAD_OK && len == VALUE_BYTES && is_value(at, key) : status == 1;
    }
    show("get", right);
    uint64_t range[2] = {shown->block + 3, 200001};
    right = call(peer, CRC, range, sizeof range, &at, &len) == OFFLOAD_OK && len == 4;
    uint32_t crc = crc_of(3, 200001);
    show("crc", right && !memcmp(at, &crc, 4));
    right = 1;
    for (uint64_t i = 0; i < 3; i++) {
        uint64_t request[2] = {shown->append, 100 + i};
        right &= call(peer, APPEND, request, sizeof request, &at, &len) == OFFLOAD_OK && len == 8;
    }
    show("append", right);
}

/* Memory that responses are written to: a room for each request, with bytes around it that stay as they are. */
enum { AT_ONCE = 8, PIECES = 60, GUARD = 64, ROOM = OFFLOAD_RESPONSE_BYTES, ROOM_AND_GUARD = ROOM + GUARD };
enum { UNTOUCHED = 0xa5, LEFT_ALONE = 0xee };
struct rooms {
    struct ibv_mr *mr;
    uint32_t key;
    uint8_t (*at)[ROOM_AND_GUARD];
    uint64_t first[AT_ONCE]; /* number of the first piece */
    int faulty[AT_ONCE];     /* nothing may be written for this request */
};

static uint64_t piece_size(uint64_t number) { return mix(number) % (ROOM / PIECES); }
static uint64_t piece_place(uint64_t number) { return mix(~number) % (BLOCK_BYTES - ROOM / PIECES); }

static void make_rooms(struct peer *peer, struct rooms *rooms) {
    size_t bytes = (AT_ONCE * sizeof *rooms->at + 4095) & ~(size_t)4095;
    if (!(rooms->at = aligned_alloc(4096, bytes))) die("memory");
    rooms->mr = ibv_reg_mr(peer->mr->pd, rooms->at, bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    if (!rooms->mr) die("ibv_reg_mr");
    rooms->key = rooms->mr->rkey;
    memset(rooms->at, 0, bytes);
}

static void ask_written(struct peer *peer, struct rooms *rooms, uint32_t slot, uint64_t block, const char *fault) {
    static uint64_t number;
    uint64_t *pair = (void *)peer->requests[slot];
    uint8_t *room = rooms->at[slot];
    uint32_t key = rooms->key;
    if (strcmp(fault, "gone")) memset(room, UNTOUCHED, ROOM_AND_GUARD);
    rooms->first[slot] = number, rooms->faulty[slot] = *fault != 0;
    for (uint32_t i = 1; i <= PIECES; i++, number++)
        pair[2 * i] = block + piece_place(number), pair[2 * i + 1] = piece_size(number);
    if (!strcmp(fault, "key")) key ^= 0x55;
    if (!strcmp(fault, "right")) key = peer->mr->rkey, room = peer->responses[0];
    if (!strcmp(fault, "range")) room = (uint8_t *)rooms->mr->addr + rooms->mr->length - GUARD;
    pair[0] = (uintptr_t)room, pair[1] = key;
    ask(peer, slot, READS_TO, (PIECES + 1) * 16);
}

static int is_all(const uint8_t *at, size_t bytes, uint8_t value) {
    while (bytes && *at == value) at++, bytes--;
    return !bytes;
}

/* The pieces are in their room, and nothing else. */
static int is_written(const struct rooms *rooms, uint32_t slot, uint32_t len) {
    const uint8_t *at = rooms->at[slot];
    uint64_t sum = 0;
    for (uint64_t i = rooms->first[slot]; i < rooms->first[slot] + PIECES; i++)
        for (uint64_t byte = 0; byte < piece_size(i); byte++, sum++)
            if (at[sum] != block_byte(piece_place(i) + byte)) return 0;
    return sum == len && is_all(at + sum, ROOM_AND_GUARD - sum, UNTOUCHED);
}

/* The next response; 0 where the connection has ended. */
static int next_response(struct peer *peer, struct ibv_wc *wc) {
    struct pollfd fd = {.fd = channel->fd, .events = POLLIN};
    for (unsigned round = 1;; round++) {
        int found = ibv_poll_cq(peer->cq, 1, wc);
        if (found < 0 || (found && wc->status != IBV_WC_SUCCESS)) return 0;
        if (found && (wc->opcode & IBV_WC_RECV)) return 1;
        if (round % 4096 == 0 && poll(&fd, 1, 0) == 1) return 0;
    }
}

/* As many responses that are right as it gives, up to a count. */
static uint64_t written(struct peer *peer, uint64_t block, uint64_t count, const char *fault) {
    struct rooms rooms;
    struct ibv_wc wc;
    uint64_t done = 0;
    int gone = 0;
    make_rooms(peer, &rooms);
    for (uint32_t slot = 0; slot < AT_ONCE; slot++) ask_written(peer, &rooms, slot, block, "");
    puts("begun");
    fflush(stdout);
    while (done < count && next_response(peer, &wc)) {
        uint32_t slot = OFFLOAD_TAG(ntohl(wc.imm_data));
        post_receive(peer);
        if (gone) continue; /* it was written before */
        int written_there = wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && is_written(&rooms, slot, wc.byte_len);
        wrong += rooms.faulty[slot] || !written_there;
        if (++done == count / 2 && !strcmp(fault, "gone")) {
            if (ibv_dereg_mr(rooms.mr)) die("ibv_dereg_mr");
            memset(rooms.at, LEFT_ALONE, AT_ONCE * sizeof *rooms.at);
            gone = 1;
        }
        ask_written(peer, &rooms, slot, block, done < count / 2 ? "" : fault);
    }
    if (gone) wrong += !is_all((uint8_t *)rooms.at, AT_ONCE * sizeof *rooms.at, LEFT_ALONE);
    else wrong += !is_all((uint8_t *)rooms.mr->addr + rooms.mr->length - GUARD, GUARD, 0);
    wrong += !is_all((uint8_t *)peer->responses, sizeof *peer->responses, 0);
    return done;
}

static uint64_t word(const char *text, const struct shown *shown) {
    if (!strcmp(text, "@list")) return shown->list;
    if (!strcmp(text, "@block")) return shown->block;
    if (!strcmp(text, "@table")) return shown->table;
    if (!strcmp(text, "@append")) return shown->append;
    return strtoull(text, NULL, 0);
}

static void one_call(struct peer *peer, struct peer *verbs, uint32_t opcode, char **words, int count) {
    uint64_t request[BATCH * 2];
    uint8_t *at;
    uint32_t len;
    for (int i = 0; i < count; i++) request[i] = word(words[i], &verbs->shown);
    uint32_t status = call(peer, opcode, request, (size_t)count * 8, &at, &len);
    printf("%#x ", status);
    for (uint32_t i = 0; i < len; i++) printf("%02x", at[i]);
    puts("");
}

/* What a version of the functions that are replaced answers (crates/offload/tests/replacements.rs). */
struct versioned {
    uint64_t version, made, read;
};

/* Calls two functions in turn that are replaced meanwhile: a version's answer is right as a whole, or wrong. */
static void versions(struct peer *peer, struct peer *verbs, const uint32_t opcodes[2]) {
    struct pollfd input = {.fd = 0, .events = POLLIN};
    unsigned long long answers[2][3] = {{0}}; /* of each function: refused, by version 1, by version 2 */
    uint64_t first;
    read_host(verbs, verbs->shown.list, &first, sizeof first);
    puts("begun");
    fflush(stdout);
    for (uint64_t round = 0; !wrong && (round % 64 || poll(&input, 1, 0) == 0); round++) {
        uint64_t request[2] = {verbs->shown.list, round};
        struct versioned answer;
        uint8_t *at;
        uint32_t len, status = call(peer, opcodes[round % 2], request, sizeof request, &at, &len);
        if (status == OFFLOAD_NO_OPCODE && !len) {
            answers[round % 2][0]++;
            continue;
        }
        if (status != OFFLOAD_OK || len != sizeof answer) {
            wrong++;
            break;
        }
        memcpy(&answer, at, sizeof answer);
        int known = answer.version == 1 || answer.version == 2;
        wrong += !known || answer.made != answer.version * 1000003 + round * opcodes[round % 2] || answer.read != first;
        if (known) answers[round % 2][answer.version]++;
    }
    for (int i = 0; i < 2; i++) printf("%llu %llu %llu\n", answers[i][0], answers[i][1], answers[i][2]);
}

static void measure_list(struct peer *peer, struct peer *verbs, int offload, uint64_t hops) {
    uint8_t value[VALUE_BYTES];
    for (uint64_t time = now(); time < end_at;) {
        uint64_t started = time;
        if (offload) errors += list(peer, verbs->shown.list, hops) != OFFLOAD_OK;
        else traverse(verbs, hops, value);
        time = now();
        record(started, time);
    }
}

/* 64-byte reads, by batches in requests of which some are outstanding. */
static void measure_batches(struct peer *peer, const struct shown *shown, uint32_t batch) {
    enum { OUTSTANDING = 4 };
    uint64_t place = 1, started[OUTSTANDING];
    for (uint32_t sent = 0, slot = 0;; ) {
        uint64_t time = now();
        if (sent < OUTSTANDING && time < end_at) {
            uint64_t *piece = (void *)peer->requests[slot];
            for (uint32_t i = 0; i < batch; i++) {
                place = mix(place + 1);
                piece[2 * i] = shown->block + place % (BLOCK_BYTES / 64) * 64, piece[2 * i + 1] = 64;
            }
            started[slot] = time;
            ask(peer, slot, READS, batch * 16);
            sent++, slot = (slot + 1) % OUTSTANDING;
            continue;
        }
        if (!sent) break;
        struct ibv_wc wc = response(peer);
        uint32_t imm = ntohl(wc.imm_data), tag = OFFLOAD_TAG(imm);
        const uint64_t *piece = (void *)peer->requests[tag];
        errors += OFFLOAD_STATUS(imm) != OFFLOAD_OK || wc.byte_len != batch * 64;
        wrong += peer->responses[wc.wr_id][0] != block_byte(piece[0] - shown->block);
        post_receive(peer);
        slot = tag, sent--;
        time = now();
        for (uint32_t i = 0; i < batch; i++) record(started[tag], time);
    }
}

/* 64-byte READs, as many outstanding as a queue pair may have. */
static void measure_reads(struct peer *verbs) {
    uint64_t place = 1, started[DEPTH];
    uint64_t from[DEPTH];
    uint32_t sent = 0, ended = 0;
    for (uint64_t time = now(); sent != ended || time < end_at; time = now()) {
        while (sent - ended < DEPTH && time < end_at) {
            uint32_t slot = sent++ % DEPTH;
            place = mix(place + 1);
            from[slot] = place % (BLOCK_BYTES / 64) * 64, started[slot] = time;
            post_read(verbs, verbs->shown.rkey, verbs->shown.block + from[slot], verbs->responses[slot], 64);
        }
        if (sent == ended) break;
        completed(verbs);
        uint32_t slot = ended++ % DEPTH;
        wrong += verbs->responses[slot][0] != block_byte(from[slot]);
        record(started[slot], now());
    }
}

int main(int argc, char **argv) {
    struct peer peer = {0}, verbs = {0};
    if (argc < 5) {
        fprintf(stderr, "usage: offload_client ADDRESS PORT VERBS_PORT check|call|until|versions|written|list|reads ...\n");
        return 2;
    }
    const char *verb = argv[4];
    if (!strcmp(argv[3], "0") && strcmp(verb, "call")) {
        fprintf(stderr, "offload_client: only \"call\" is there without a VERBS_PORT of offload_host\n");
        return 2;
    }
    if (strcmp(argv[3], "0")) connect_to(&verbs, argv[1], argv[3]);
    if (argc < 6 || strcmp(argv[5], "verbs")) connect_to(&peer, argv[1], argv[2]);
    if (!strcmp(verb, "check")) {
        check(&peer, &verbs);
    } else if (!strcmp(verb, "call") && argc >= 6) {
        one_call(&peer, &verbs, (uint32_t)strtoul(argv[5], NULL, 0), argv + 6, argc - 6);
    } else if (!strcmp(verb, "until") && argc == 6) {
        puts("begun");
        fflush(stdout);
        uint64_t count = strtoull(argv[5], NULL, 0), done = 0;
        while (done < count && !wrong) {
            uint32_t status = list(&peer, verbs.shown.list, done % 16 + 1);
            if (status != OFFLOAD_OK && status != OFFLOAD_NO_OPCODE) break;
            done += status == OFFLOAD_OK;
        }
        printf("%llu\n", (unsigned long long)done);
    } else if (!strcmp(verb, "versions") && argc == 7) {
        uint32_t opcodes[2] = {(uint32_t)strtoul(argv[5], NULL, 0), (uint32_t)strtoul(argv[6], NULL, 0)};
        versions(&peer, &verbs, opcodes);
    } else if (!strcmp(verb, "written") && argc >= 6) {
        uint64_t count = strtoull(argv[5], NULL, 0);
        uint64_t done = written(&peer, verbs.shown.block, count, argc > 6 ? argv[6] : "");
        printf("%llu\n", (unsigned long long)done);
        if (done < count && !wrong) return 3;
    } else if ((!strcmp(verb, "list") || !strcmp(verb, "reads")) && argc == 8) {
        int offload = !strcmp(argv[5], "offload");
        uint32_t number = (uint32_t)atoi(argv[6]);
        double cpu = cpu_seconds();
        if (number < 1 || number > (*verb == 'l' ? ELEMENTS : BATCH)) return 2;
        say_begin(WARM_UP_MS / 1e3, atof(argv[7]));
        if (*verb == 'l') measure_list(&peer, &verbs, offload, number);
        else if (offload) measure_batches(&peer, &verbs.shown, number);
        else measure_reads(&verbs);
        return say_result(cpu_seconds() - cpu, NULL, 0);
    } else {
        return 2;
    }
    return wrong != 0;
}
