// A register is not read outside of a register action.
#include "../frame.p4"

control Body(inout headers_t hdr, inout metadata_t meta) {
    Register<bit<32>, bit<16>>(16384, 0) state;
    apply {
        meta.a = state.read(hdr.seg.flow);
    }
}

#include "../pipe.p4"
