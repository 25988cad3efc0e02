// Runs `top`: packets by AXI4-Stream, with stalls in their middle; the control bus by AXI4-Lite, while they pass.
//   S <in> <out>               of 256 clocks, in how many a stream stalls, at random
//   P <port> <bytes>           a packet to send, behind those that wait; "-" has no bytes
//   L <address> <data>         a write by AXI4-Lite, which is waited for
//   G <address>                a read
//   K <clocks>                 goes on for so long
//   W                          until all packets have come in and nothing has moved for long
// Numbers are hexadecimal. What happens is written in its order:
//   i                          the last beat of a packet that was to be sent is taken
//   t <batch> <number>         a packet of the generator is taken
//   n                          a packet enters ingress
//   q <again> <queue> <full> <leaves>   something comes to a queue: whether a copy of egress, whether it was full, and
//                                       whether something leaves it in the same clock
//   d <queue>                  something leaves one
//   c <halves>                 a command reaches a half
//   o <port> <bytes> <clock>   a packet has left
//   g <response> <data>        of a read; of a write: b <response>
#include "model.h"
#include <deque>
#include <vector>

struct Packet {
    unsigned port;
    std::vector<unsigned char> bytes;
};

static std::deque<Packet> waiting;
static std::size_t at;
static std::vector<unsigned char> leaving;
static unsigned stalls[2];
static unsigned long long moved, clocks;

static bool stalled(unsigned share) {
    static unsigned state = 7;
    state = state * 1664525 + 1013904223;
    return (state >> 16 & 255) < share;
}

static void put_beat() {
    const Packet &packet = waiting.front();
    for (int i = 0; i < 16; i++) top->s_axis_tdata[i] = 0xaaaaaaaa;
    std::size_t count = packet.bytes.size() - at < 64 ? packet.bytes.size() - at : 64;
    for (std::size_t i = 0; i < count; i++) {
        unsigned shift = i % 4 * 8;
        top->s_axis_tdata[i / 4] &= ~(255u << shift);
        top->s_axis_tdata[i / 4] |= static_cast<unsigned>(packet.bytes[at + i]) << shift;
    }
    top->s_axis_tkeep = count == 64 ? ~0ULL : (1ULL << count) - 1;
    top->s_axis_tlast = at + count == packet.bytes.size();
    top->s_axis_tuser = packet.port;
    top->s_axis_tvalid = 1;
}

static void take_beat() {
    for (int i = 0; i < 64; i++)
        if (top->m_axis_tkeep >> i & 1) leaving.push_back(top->m_axis_tdata[i / 4] >> i % 4 * 8 & 255);
    if (!top->m_axis_tlast) return;
    std::printf("o %x ", static_cast<unsigned>(top->m_axis_tuser));
    for (unsigned char byte : leaving) std::printf("%02x", byte);
    std::printf(" %llx\n", clocks);
    leaving.clear();
}

static void tick() {
    // What is offered stays until it is taken.
    if (!top->s_axis_tvalid && !waiting.empty() && !stalled(stalls[0])) put_beat();
    top->m_axis_tready = !stalled(stalls[1]);
    level(0);
    if (top->commands) std::printf("c %x\n", static_cast<unsigned>(top->commands));
    if (top->dequeued) std::printf("d %x\n", static_cast<unsigned>(top->dequeued_from));
    if (top->queued)
        std::printf("q %x %x %x %x\n", static_cast<unsigned>(top->queued_again), static_cast<unsigned>(top->queued_in),
                    static_cast<unsigned>(top->queue_full), top->dequeued && top->dequeued_from == top->queued_in);
    bool in = top->s_axis_tvalid && top->s_axis_tready, out = top->m_axis_tvalid && top->m_axis_tready;
    if (in && top->s_axis_tlast) std::printf("i\n");
    if (top->generated)
        std::printf("t %x %x\n", static_cast<unsigned>(top->generated_batch),
                    static_cast<unsigned>(top->generated_number));
    if (top->enters) std::printf("n\n");
    if (out) take_beat();
    if (in || out || top->dequeued || top->enters) moved = clocks;
    bool last = top->s_axis_tlast;
    level(1);
    clocks++;
    if (in) {
        top->s_axis_tvalid = 0;
        at += 64;
        if (last) {
            waiting.pop_front();
            at = 0;
        }
    }
}

static void axil_write(const std::string &address, const std::string &data) {
    set(top->s_axil_awaddr, address);
    set(top->s_axil_wdata, data);
    // Address and data come one behind the other, in either order.
    unsigned first = clocks & 1;
    (first ? top->s_axil_awvalid : top->s_axil_wvalid) = 1;
    tick();
    top->s_axil_awvalid = top->s_axil_wvalid = 1;
    for (bool taken = false; !taken;) {
        level(0);
        taken = top->s_axil_awready && top->s_axil_wready;
        tick();
    }
    top->s_axil_awvalid = top->s_axil_wvalid = 0;
    while (!top->s_axil_bvalid) tick();
    std::printf("b %x\n", static_cast<unsigned>(top->s_axil_bresp));
    top->s_axil_bready = 1;
    tick();
    top->s_axil_bready = 0;
}

static void axil_read(const std::string &address) {
    set(top->s_axil_araddr, address);
    top->s_axil_arvalid = 1;
    tick();
    top->s_axil_arvalid = 0;
    while (!top->s_axil_rvalid) tick();
    std::printf("g %x %x\n", static_cast<unsigned>(top->s_axil_rresp), static_cast<unsigned>(top->s_axil_rdata));
    top->s_axil_rready = 1;
    tick();
    top->s_axil_rready = 0;
}

int main(int argc, char **argv) {
    begin(argc, argv);
    top->s_axis_tvalid = top->s_axil_awvalid = top->s_axil_wvalid = top->s_axil_arvalid = 0;
    top->s_axil_bready = top->s_axil_rready = 0;
    top->now = 0;
    top->rst = 1;
    for (int i = 0; i < 4; i++) tick();
    top->rst = 0;
    std::string line;
    while (std::getline(std::cin, line)) {
        std::istringstream words(line);
        std::string kind, a, b;
        words >> kind >> a >> b;
        if (kind == "S") {
            set(stalls[0], a);
            set(stalls[1], b);
        } else if (kind == "P") {
            Packet packet{static_cast<unsigned>(std::stoul(a, nullptr, 16)), {}};
            for (std::size_t i = 0; b != "-" && i + 1 < b.size(); i += 2)
                packet.bytes.push_back(static_cast<unsigned char>(digit(b[i]) << 4 | digit(b[i + 1])));
            waiting.push_back(packet);
        } else if (kind == "L") {
            axil_write(a, b);
        } else if (kind == "G") {
            axil_read(a);
        } else if (kind == "K") {
            for (unsigned long left = std::stoul(a, nullptr, 16); left > 0; left--) tick();
        } else {
            moved = clocks;
            while (clocks - moved < 3000) tick();
            if (!waiting.empty()) {
                std::fprintf(stderr, "%zu packets do not come in\n", waiting.size());
                return 3;
            }
            std::printf("w %llx\n", clocks);
        }
    }
    end();
    return 0;
}
