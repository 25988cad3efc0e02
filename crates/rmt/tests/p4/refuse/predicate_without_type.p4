// A predicate whose type nothing names.
#include "../frame.p4"

control Body(inout headers_t hdr, inout metadata_t meta) {
    Register<bit<32>, bit<16>>(16384, 0) state;
    RegisterAction<bit<32>, bit<16>, bit<16>>(state) update = {
        void apply(inout bit<32> v, out bit<16> which) {
            which = this.predicate((int<32>)(hdr.seg.seq - v) <= 0);
            v = hdr.seg.seq;
        }
    };
    apply {
        meta.predicate = update.execute(hdr.seg.flow);
    }
}

#include "../pipe.p4"
