/* Cases of POSIX and Linux socket behaviour. The same program runs on the kernel's TCP (over loopback) and under
 * libtoe.so, and must pass on both: so the kernel itself vouches for what is expected here.
 *
 * usage: posix ADDRESS [CASE...]; compiled with -DV6, the address is of IPv6
 */
#include "posix/addresses.h"
#include "posix/bytes.h"
#include "posix/calls.h"
#include "posix/events.h"
#include "posix/marks.h"
#include "posix/processes.h"
#include "posix/urgent.h"

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
    {"sleeps_before_the_first_socket", sleeps_before_the_first_socket}, {"by_number", by_number},
    {"confined", confined},
    {"names", names},           {"kept_address", kept_address}, {"transfer", transfer},     {"half_close", half_close},
    {"sigpipe", sigpipe},       {"reset", reset},           {"reset_alone", reset_alone},
             {"nonblocking_connect", nonblocking_connect},
    {"epoll", level_and_edge},  {"mixed_sets", mixed_sets}, {"threads", threads}, {"turns", turns},
    {"full_buffer", full_buffer}, {"signals", signals},     {"timeouts", timeouts},
    {"signal_at_once", signal_at_once}, {"ignored_signals", ignored_signals},
    {"descriptors", descriptors}, {"files", files}, {"through_pipes", through_pipes},       {"forked", forked},
    {"ends_with_bytes_unread", ends_with_bytes_unread},
    {"shared_after_fork", shared_after_fork}, {"waits_while_shared", waits_while_shared},
    {"writes_at_once", writes_at_once}, {"executed", executed}, {"many_executed", many_executed},
    {"carried_alone", carried_alone}, {"kept_by_a_child", kept_by_a_child},
    {"joining", joining},       {"listeners_in_sets", listeners_in_sets},
    {"error_behind_bytes", error_behind_bytes}, {"answered_before_reset", answered_before_reset}, {"crumbs", crumbs},
    {"large_writes", large_writes}, {"send_buffer", send_buffer}, {"options", options},
    {"receive_mark", receive_mark}, {"receive_mark_blocking", receive_mark_blocking},
    {"receive_mark_inherited", receive_mark_inherited}, {"unsent_mark", unsent_mark}, {"urgent", urgent},
    {"events_by_signal", events_by_signal},
    {"addresses", addresses}, {"for_one_family", for_one_family},
};

int main(int argc, char **argv) {
    signal(SIGPIPE, SIG_IGN);
    if (argc == 3 && strcmp(argv[1], "inherited") == 0) return inherited(atoi(argv[2]));
    if (argc < 2 || inet_pton(FAMILY, argv[1], &here.ADDRESS_IP) != 1) return 2;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int wanted = argc == 2;
        for (int a = 2; a < argc; a++) wanted |= strcmp(argv[a], cases[i].name) == 0;
        if (!wanted) continue;
        cases[i].run();
        printf("ok %s\n", cases[i].name);
        fflush(stdout);
    }
    return 0;
}