// A sum of a pair that is written to it, and returned.
#include "../frame.p4"

control Body(inout headers_t hdr, inout metadata_t meta) {
    Register<pair_t, bit<16>>(16384, { 0, 0 }) state;
    RegisterAction<pair_t, bit<16>, bit<32>>(state) update = {
        void apply(inout pair_t p, out bit<32> result) {
            p.lo = p.lo + hdr.seg.seq;
            result = p.lo;
        }
    };
    action go() { meta.a = update.execute(hdr.seg.flow); }
    table t {
        key = { hdr.seg.kind: exact; }
        actions = { go; NoAction; }
        default_action = NoAction();
        size = 16;
    }
    apply {
        t.apply();
    }
}

#include "../pipe.p4"
