// Runs the split unit: reads a script, one line each, and offers its arrivals and operations in that order.
//   S <in> <place> <head>                             of 256 clocks, in how many each interface stalls, at random
//   A <tuple> <seq> <len> <head>                      an arrival
//   O <kind> <tuple> <line> <key> <offset> <len> <seq>   an operation
//   T                                                 waits until all is answered, and writes the clocks since the last
// Numbers are hexadecimal. Three kinds of lines come out, each in its order, and the clocks:
//   h <line> <case> <skip> <len> <head>               a header
//   d <line> <key> <offset> <at> <len> <last>         a part of a payload, and its place
//   o <ok> <moved> <free blocks>                      an operation is done
//   t <clocks>
#include "model.h"

static unsigned stalls[3];
static unsigned long long asked, answered, clocks;

// Numerical Recipes' generator: which clocks stall repeats.
static bool stalled(unsigned share) {
    static unsigned state = 1;
    state = state * 1664525 + 1013904223;
    return (state >> 16 & 255) < share;
}

// One clock; true where what was offered was taken.
static bool tick() {
    top->place_ready = !stalled(stalls[1]);
    top->head_ready = !stalled(stalls[2]);
    level(0);
    bool taken = (top->in_valid && top->in_ready) || (top->op_valid && top->op_ready);
    if (top->place_valid && top->place_ready) {
        std::printf("d");
        show(top->place_line);
        show(top->place_key);
        show(top->place_offset);
        show(top->place_at);
        show(top->place_len);
        show(top->place_last);
        std::printf("\n");
    }
    if (top->head_valid && top->head_ready) {
        std::printf("h");
        show(top->head_line);
        show(top->head_case);
        show(top->head_skip);
        show(top->head_len);
        show(top->head_data);
        std::printf("\n");
        answered++;
    }
    if (top->op_done) {
        std::printf("o");
        show(top->op_ok);
        show(top->op_moved);
        show(top->free_blocks);
        std::printf("\n");
        answered++;
    }
    level(1);
    clocks++;
    return taken;
}

// Clocks until `done`; false where that lasts longer than any walk does.
template <typename F> static bool until(F done) {
    for (int i = 0; i < 100000; i++)
        if (done()) return true;
    return false;
}

int main(int argc, char **argv) {
    begin(argc, argv);
    top->in_valid = top->op_valid = 0;
    top->rst = 1;
    for (int i = 0; i < 4; i++) tick();
    top->rst = 0;
    std::string line;
    bool well = true;
    while (well && std::getline(std::cin, line)) {
        std::istringstream words(line);
        std::string kind, a, b, c, d, e, f, g;
        words >> kind >> a >> b >> c >> d >> e >> f >> g;
        if (kind == "S") {
            set(stalls[0], a);
            set(stalls[1], b);
            set(stalls[2], c);
            continue;
        }
        if (kind == "T") {
            well = until([] { return tick(), answered == asked; });
            std::printf("t %llx\n", clocks);
            clocks = 0;
            continue;
        }
        while (stalled(stalls[0])) tick();
        if (kind == "A") {
            set(top->in_tuple, a);
            set(top->in_seq, b);
            set(top->in_len, c);
            set(top->in_head, d);
            top->in_valid = 1;
        } else {
            set(top->op_kind, a);
            set(top->op_tuple, b);
            set(top->op_line, c);
            set(top->op_key, d);
            set(top->op_offset, e);
            set(top->op_len, f);
            set(top->op_seq, g);
            top->op_valid = 1;
        }
        asked++;
        well = until(tick);
        top->in_valid = top->op_valid = 0;
    }
    well = well && until([] { return tick(), answered == asked; });
    end();
    if (well) return 0;
    std::fprintf(stderr, "%llu arrivals and operations, %llu answers\n", asked, answered);
    return 3;
}
