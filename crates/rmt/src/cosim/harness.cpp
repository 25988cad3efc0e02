// Both halves of a program as one process (docs/RTL.md, "Co-simulation"). It reads requests from its input and writes
// answers to its output, both as crates/rmt/src/cosim/channel.rs describes them. Numbers are little endian.
#include "Vegress.h"
#include "Vingress.h"
#include <cstddef>
#include "sizes.h"
#include "verilated.h"
#if VM_TRACE
#include "verilated_vcd_c.h"
#endif
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static VerilatedContext context;
static Vingress *ingress;
static Vegress *egress;
#if VM_TRACE
static VerilatedVcdC *waveform;
#endif

// `exit_group`, which `_exit` calls, is not among what strict mode leaves.
[[noreturn]] static void leave(int status) {
#if VM_TRACE
    if (waveform) waveform->close();
    _exit(status);
#endif
    for (;;) syscall(SYS_exit, status);
}

[[noreturn]] static void fail(const char *what) {
    const char *parts[] = {"opentoe-rtl: ", what, "\n"};
    for (const char *part : parts)
        if (write(2, part, std::strlen(part)) < 0) break;
    leave(3);
}

// ---- input and output: whole blocks, since a request may be one of many ----

static std::uint8_t input[1 << 16], output[1 << 16];
static std::size_t input_at, input_end, output_end;

static void flush() {
    for (std::size_t at = 0; at < output_end;) {
        ssize_t wrote = write(1, output + at, output_end - at);
        if (wrote <= 0) leave(0);
        at += static_cast<std::size_t>(wrote);
    }
    output_end = 0;
}

static std::uint8_t take() {
    if (input_at == input_end) {
        // Whoever waits for answers has sent all that it wanted to.
        flush();
        ssize_t got = read(0, input, sizeof input);
        if (got <= 0) leave(0);
        input_at = 0;
        input_end = static_cast<std::size_t>(got);
    }
    return input[input_at++];
}

template <typename T> static T number() {
    T value = 0;
    for (std::size_t i = 0; i < sizeof(T); i++) value = static_cast<T>(value | static_cast<T>(take()) << (8 * i));
    return value;
}

static void put(std::uint8_t byte) {
    if (output_end == sizeof output) flush();
    output[output_end++] = byte;
}

template <typename T> static void put_number(T value) {
    for (std::size_t i = 0; i < sizeof(T); i++) put(static_cast<std::uint8_t>(value >> (8 * i)));
}

// ---- signals as bytes, the lowest first ----

template <typename T> static std::uint8_t byte_of(const T &signal, std::size_t at) {
    return at < sizeof(T) ? static_cast<std::uint8_t>(signal >> (8 * at)) : 0;
}

template <std::size_t N> static std::uint8_t byte_of(const VlWide<N> &signal, std::size_t at) {
    return at / 4 < N ? static_cast<std::uint8_t>(signal[at / 4] >> (8 * (at % 4))) : 0;
}

template <typename T> static void clear(T &signal) { signal = 0; }

template <std::size_t N> static void clear(VlWide<N> &signal) {
    for (std::size_t i = 0; i < N; i++) signal[i] = 0;
}

template <typename T> static void set_byte(T &signal, std::size_t at, std::uint8_t byte) {
    if (at < sizeof(T)) signal = static_cast<T>(signal | static_cast<T>(byte) << (8 * at));
}

template <std::size_t N> static void set_byte(VlWide<N> &signal, std::size_t at, std::uint8_t byte) {
    if (at / 4 < N) signal[at / 4] |= static_cast<EData>(byte) << (8 * (at % 4));
}

// ---- clocks ----

template <typename Half> static void tick(Half *half) {
    for (int level = 0; level < 2; level++) {
        half->clk = level;
        half->eval();
#if VM_TRACE
        context.timeInc(1);
        if (waveform) waveform->dump(context.time());
#endif
    }
}

// Operations of the control bus that have not come out yet.
static unsigned pending[2];

template <typename Half> static void step(Half *half, unsigned number) {
    tick(half);
    half->in_valid = half->ctl_valid = 0;
    if (half->ctl_done) pending[number]--;
}

template <typename Half> static void begin(Half *half) {
    half->clk = half->in_valid = half->ctl_valid = 0;
    half->rst = 1;
    for (int i = 0; i < 4; i++) tick(half);
    half->rst = 0;
}

// A packet: its headers, and its length with what lies behind them.
struct Packet {
    std::uint16_t port;
    std::uint8_t queue;
    std::uint64_t time;
    std::uint32_t length;
    std::uint32_t count;
    std::uint8_t bytes[1024];
};

template <typename Half> static void pass(Half *half, unsigned number, const Packet &packet, std::size_t in_bytes) {
    half->in_port = packet.port;
    half->in_queue = packet.queue;
    half->in_time = packet.time;
    half->in_len = packet.length > 0xffff ? 0xffff : packet.length;
    clear(half->in_data);
    for (std::size_t i = 0; i < packet.count && i < in_bytes; i++)
        set_byte(half->in_data, in_bytes - 1 - i, packet.bytes[i]);
    half->in_valid = 1;
    for (int clocks = 0; clocks < MOST_CLOCKS; clocks++) {
        step(half, number);
        if (half->out_valid) return;
    }
    fail("a packet did not come out of the simulated model");
}

template <typename Half> static void answer(Half *half, unsigned number, std::uint32_t rest, std::size_t out_bytes,
                                            const unsigned *mirror_bytes, unsigned mirrors) {
    put(static_cast<std::uint8_t>(number));
    put(static_cast<std::uint8_t>(half->out_drop | half->out_bypass << 1));
    put_number<std::uint16_t>(half->out_port);
    put(half->out_queue);
    put_number<std::uint32_t>(rest);
    put_number<std::uint16_t>(half->mirror_port);
    put(half->mirror_queue);
    put(mirrors ? byte_of(half->mirror_valid, 0) : 0);
    std::size_t from = 0;
    for (unsigned i = 0; i < mirrors; i++) {
        if (half->mirror_valid >> i & 1) {
            put(byte_of(half->mirror_session, i));
            put_number<std::uint16_t>(mirror_bytes[i]);
            for (std::size_t at = mirror_bytes[i]; at-- > 0;) put(byte_of(half->mirror_data, from + at));
        }
        from += mirror_bytes[i];
    }
    std::uint16_t head = half->out_head;
    put_number(head);
    for (std::size_t i = 0; i < head; i++) put(byte_of(half->out_data, out_bytes - 1 - i));
}

// ---- requests ----

static Packet packet;

static void read_packet() {
    packet.port = number<std::uint16_t>();
    packet.queue = take();
    packet.time = number<std::uint64_t>();
    packet.length = number<std::uint32_t>();
    packet.count = number<std::uint16_t>();
    if (packet.count > sizeof packet.bytes) fail("a packet has more headers than there is room for");
    for (std::uint32_t i = 0; i < packet.count; i++) packet.bytes[i] = take();
}

static void answer_ingress() { answer(ingress, 0, ingress->out_rest, INGRESS_OUT, INGRESS_MIRRORS, INGRESS_COPIES); }

static void through() {
    pass(ingress, 0, packet, INGRESS_IN);
    bool copies = INGRESS_COPIES && ingress->mirror_valid;
    if (ingress->out_drop || ingress->out_bypass || copies) return answer_ingress();
    std::uint32_t rest = ingress->out_rest;
    packet.port = ingress->out_port;
    packet.queue = ingress->out_queue;
    packet.count = ingress->out_head;
    packet.length = packet.count + (packet.length > rest ? packet.length - rest : 0);
    for (std::uint32_t i = 0; i < packet.count; i++) packet.bytes[i] = byte_of(ingress->out_data, INGRESS_OUT - 1 - i);
    pass(egress, 1, packet, EGRESS_IN);
    egress->out_port = packet.port;
    answer(egress, 1, rest, EGRESS_OUT, EGRESS_MIRRORS, EGRESS_COPIES);
}

template <typename Half> static void control(Half *half, unsigned number_of, bool writes, std::size_t bytes) {
    half->ctl_write = writes;
    half->ctl_target = take();
    half->ctl_index = number<std::uint32_t>();
    clear(half->ctl_data);
    if (writes)
        for (std::size_t i = 0; i < bytes; i++) set_byte(half->ctl_data, i, take());
    half->ctl_valid = 1;
    pending[number_of]++;
    step(half, number_of);
    if (writes) return;
    for (int clocks = 0; pending[number_of]; clocks++) {
        if (clocks == MOST_CLOCKS) fail("a read did not come out of the simulated model");
        step(half, number_of);
    }
    for (std::size_t i = 0; i < bytes; i++) put(byte_of(half->ctl_result, i));
}

static void serve(std::uint8_t kind) {
    switch (kind) {
    case 'T':
        read_packet();
        return through();
    case 'I':
        read_packet();
        pass(ingress, 0, packet, INGRESS_IN);
        return answer_ingress();
    case 'E':
        read_packet();
        pass(egress, 1, packet, EGRESS_IN);
        return answer(egress, 1, egress->out_rest, EGRESS_OUT, EGRESS_MIRRORS, EGRESS_COPIES);
    case 'W':
    case 'R':
        if (take()) return control(egress, 1, kind == 'W', EGRESS_CONTROL);
        return control(ingress, 0, kind == 'W', INGRESS_CONTROL);
    default:
        fail("a request that is none");
    }
}

int main(int argc, char **argv) {
    // No pool of threads beside this one: `exit` ends one thread only.
    context.threads(1);
    ingress = new Vingress(&context, "ingress");
    egress = new Vegress(&context, "egress");
#if VM_TRACE
    if (argc > 1) {
        context.traceEverOn(true);
        waveform = new VerilatedVcdC();
        ingress->trace(waveform, 99);
        egress->trace(waveform, 99);
        waveform->open(argv[1]);
        if (!waveform->isOpen()) fail("cannot write the waveform");
    }
#else
    (void)argc;
    (void)argv;
#endif
    begin(ingress);
    begin(egress);
    put('!');
    flush();
#if !VM_TRACE
    // From here on this process can read, write and end, nothing else.
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0, 0, 0) != 0) fail("cannot confine itself (seccomp)");
#endif
    for (;;) serve(take());
}
