// What drives a verilated module, for all harnesses: its clock, a waveform where RTL_TRACE names a file, and ports as
// hexadecimal numbers, the widest as VlWide.
#pragma once
#include "Vrtl.h"
#include "verilated.h"
#if VM_TRACE
#include "verilated_vcd_c.h"
#endif
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>

static unsigned digit(char c) { return c <= '9' ? c - '0' : (c | 32) - 'a' + 10; }

template <typename T> static void set(T &to, const std::string &hex) {
    T value = 0;
    for (char c : hex) value = static_cast<T>(value << 4 | digit(c));
    to = value;
}

template <std::size_t N> static void set(VlWide<N> &to, const std::string &hex) {
    for (std::size_t i = 0; i < N; i++) to[i] = 0;
    std::size_t at = 0;
    for (auto c = hex.rbegin(); c != hex.rend() && at / 8 < N; ++c, ++at) to[at / 8] |= digit(*c) << (at % 8 * 4);
}

template <typename T> static void show(const T &value) { std::printf(" %llx", static_cast<unsigned long long>(value)); }

template <std::size_t N> static void show(const VlWide<N> &value) {
    std::printf(" ");
    for (std::size_t i = N; i-- > 0;) std::printf("%08x", value[i]);
}

static VerilatedContext context;
static std::unique_ptr<Vrtl> top;
#if VM_TRACE
static std::unique_ptr<VerilatedVcdC> trace;
#endif

static void begin(int argc, char **argv) {
    context.commandArgs(argc, argv);
    top = std::make_unique<Vrtl>(&context);
#if VM_TRACE
    if (const char *file = std::getenv("RTL_TRACE")) {
        context.traceEverOn(true);
        trace = std::make_unique<VerilatedVcdC>();
        top->trace(trace.get(), 9);
        trace->open(file);
    }
#endif
}

// The clock's level changes; with its rise, the registers do.
static void level(int value) {
    top->clk = value;
    top->eval();
    context.timeInc(1);
#if VM_TRACE
    if (trace) trace->dump(context.time());
#endif
}

static void clock_once() {
    level(0);
    level(1);
}

static void end() {
    top->final();
#if VM_TRACE
    if (trace) trace->close();
    trace.reset();
#endif
    top.reset();
}
