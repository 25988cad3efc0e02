// An average by the math unit.
#include "../frame.p4"

control Body(inout headers_t hdr, inout metadata_t meta) {
    Register<bit<32>, bit<16>>(16384, 0) state;
    MathUnit<bit<32>>(MathOp_t.MUL, 1, 2) half;
    RegisterAction<bit<32>, bit<16>, bit<32>>(state) update = {
        void apply(inout bit<32> v, out bit<32> now) {
            v = half.execute(v);
            now = v;
        }
    };
    apply {
        meta.next = update.execute(hdr.seg.flow);
    }
}

#include "../pipe.p4"
