// More fields than the packet header vector has bits.
#include "../frame.p4"

header big_h {
    bit<128> f0;
    bit<128> f1;
    bit<128> f2;
    bit<128> f3;
    bit<128> f4;
    bit<128> f5;
    bit<128> f6;
    bit<128> f7;
    bit<128> f8;
    bit<128> f9;
    bit<128> f10;
    bit<128> f11;
    bit<128> f12;
    bit<128> f13;
    bit<128> f14;
    bit<128> f15;
    bit<128> f16;
    bit<128> f17;
    bit<128> f18;
    bit<128> f19;
    bit<128> f20;
    bit<128> f21;
    bit<128> f22;
    bit<128> f23;
    bit<128> f24;
    bit<128> f25;
    bit<128> f26;
    bit<128> f27;
    bit<128> f28;
    bit<128> f29;
    bit<128> f30;
    bit<128> f31;
    bit<128> f32;
}

struct big_t {
    seg_h seg;
    big_h big;
}

control Body(inout headers_t hdr, inout metadata_t meta) {
    big_h big;
    apply {
        big.setValid();
        big.f0 = 1;
        big.f1 = 1;
        big.f2 = 1;
        big.f3 = 1;
        big.f4 = 1;
        big.f5 = 1;
        big.f6 = 1;
        big.f7 = 1;
        big.f8 = 1;
        big.f9 = 1;
        big.f10 = 1;
        big.f11 = 1;
        big.f12 = 1;
        big.f13 = 1;
        big.f14 = 1;
        big.f15 = 1;
        big.f16 = 1;
        big.f17 = 1;
        big.f18 = 1;
        big.f19 = 1;
        big.f20 = 1;
        big.f21 = 1;
        big.f22 = 1;
        big.f23 = 1;
        big.f24 = 1;
        big.f25 = 1;
        big.f26 = 1;
        big.f27 = 1;
        big.f28 = 1;
        big.f29 = 1;
        big.f30 = 1;
        big.f31 = 1;
        big.f32 = 1;
    }
}

#include "../pipe.p4"
