// Two lists of fields, each with a hash unit.
#include "../frame.p4"

control Body(inout headers_t hdr, inout metadata_t meta) {
    Hash<bit<16>>(HashAlgorithm_t.CRC16) one;
    Hash<bit<16>>(HashAlgorithm_t.CRC16) other;
    apply {
        meta.half = one.get({ hdr.seg.seq, hdr.seg.ack });
        meta.other_half = other.get({ hdr.seg.seq });
    }
}

#include "../pipe.p4"
