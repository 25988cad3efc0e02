// Two lists of fields with one hash unit.
#include "../frame.p4"

control Body(inout headers_t hdr, inout metadata_t meta) {
    Hash<bit<16>>(HashAlgorithm_t.CRC16) one;
    apply {
        meta.half = one.get({ hdr.seg.seq, hdr.seg.ack });
        meta.other_half = one.get({ hdr.seg.seq });
    }
}

#include "../pipe.p4"
