// Runs a generated half: reads operations, one a line, clocks them in one behind the other, and writes what comes out.
//   P <idle clocks before> <length> <port> <queue> <time> <bytes>      a packet
//   C <write> <target> <index> <data>                                  an operation of the control bus
//   M <idle clocks before> <length> <port> <queue> <time> <bytes>      a packet to keep
//   T <times>                                                          all that were kept, so often, one every clock
// Numbers are hexadecimal. Answers come in the same order:
//   p <drop> <port> <queue> <bypass> <head> <rest> <bytes> <mirrors> <sessions> <port> <queue> <data>
//   c <data>
//   s <packets> <microseconds>, of T
#include "model.h"
#include <chrono>
#include <vector>

// One clock; what left before its edge is reported behind it.
static unsigned tick() {
    clock_once();
    unsigned answers = 0;
    if (top->out_valid) {
        std::printf("p");
        show(top->out_drop);
        show(top->out_port);
        show(top->out_queue);
        show(top->out_bypass);
        show(top->out_head);
        show(top->out_rest);
        show(top->out_data);
        show(top->mirror_valid);
        show(top->mirror_session);
        show(top->mirror_port);
        show(top->mirror_queue);
        show(top->mirror_data);
        std::printf("\n");
        answers++;
    }
    if (top->ctl_done) {
        std::printf("c");
        show(top->ctl_result);
        std::printf("\n");
        answers++;
    }
    return answers;
}

// A packet, as the half's inputs have it.
struct Kept {
    decltype(top->in_len + 0) len, port, queue;
    std::remove_reference_t<decltype(top->in_data)> data;
};

// How long the model itself takes: without text, and with a packet in each stage.
static void time_kept(const std::vector<Kept> &kept, unsigned long times) {
    using clock = std::chrono::steady_clock;
    clock::time_point start = clock::now();
    for (unsigned long i = 0; i < times; i++) {
        for (const Kept &packet : kept) {
            top->in_len = packet.len;
            top->in_port = packet.port;
            top->in_queue = packet.queue;
            top->in_data = packet.data;
            top->in_valid = 1;
            clock_once();
        }
    }
    top->in_valid = 0;
    for (int i = 0; i < 1000; i++) clock_once();
    long long took = std::chrono::duration_cast<std::chrono::microseconds>(clock::now() - start).count();
    std::printf("s %zu %lld\n", kept.size() * times, took);
}

int main(int argc, char **argv) {
    begin(argc, argv);
    top->in_valid = top->ctl_valid = 0;
    top->rst = 1;
    for (int i = 0; i < 4; i++) tick();
    top->rst = 0;
    unsigned long long sent = 0, answered = 0;
    std::vector<Kept> kept;
    std::string line;
    while (std::getline(std::cin, line)) {
        std::istringstream words(line);
        std::string kind, a, b, c, d, e, f;
        words >> kind >> a >> b >> c >> d >> e >> f;
        top->in_valid = top->ctl_valid = 0;
        if (kind == "T") {
            for (int i = 0; i < 1000 && answered < sent; i++) answered += tick();
            time_kept(kept, std::stoul(a, nullptr, 16));
            continue;
        }
        if (kind == "P" || kind == "M") {
            unsigned long idle = kind == "P" ? std::stoul(a, nullptr, 16) : 0;
            for (; idle > 0; idle--) answered += tick();
            set(top->in_len, b);
            set(top->in_port, c);
            set(top->in_queue, d);
            set(top->in_time, e);
            set(top->in_data, f);
            if (kind == "M") {
                kept.push_back({top->in_len, top->in_port, top->in_queue, top->in_data});
                continue;
            }
            top->in_valid = 1;
        } else if (kind == "C") {
            set(top->ctl_write, a);
            set(top->ctl_target, b);
            set(top->ctl_index, c);
            set(top->ctl_data, d);
            top->ctl_valid = 1;
        } else {
            std::fprintf(stderr, "no operation: %s\n", line.c_str());
            return 2;
        }
        answered += tick();
        sent++;
    }
    top->in_valid = top->ctl_valid = 0;
    // The pipeline is shorter than this.
    for (int i = 0; i < 1000 && answered < sent; i++) answered += tick();
    end();
    if (answered == sent) return 0;
    std::fprintf(stderr, "%llu operations, %llu answers\n", sent, answered);
    return 3;
}
