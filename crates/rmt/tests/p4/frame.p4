// What every case shares: headers, parsers and deparsers. A case defines `control Body` and includes pipe.p4.
#include <core.p4>
#include <t2na.p4>

header seg_h {
    bit<8> kind;
    bit<8> small;
    bit<16> flow;
    bit<16> len;
    bit<16> port;
    bit<32> seq;
    bit<32> seq_end;
    bit<32> ack;
    bit<32> word;
}

header mirror_h {
    bit<8> kind;
    bit<8> flags;
    bit<32> next;
    bit<32> advance;
    bit<32> head;
    bit<32> tail;
    bit<32> ack;
}

struct headers_t {
    seg_h seg;
}

struct metadata_t {
    bit<8> kind;
    bit<8> flag;
    bit<8> verdict;
    bit<16> half;
    bit<16> other_half;
    bit<16> predicate;
    bit<32> a;
    bit<32> b;
    bit<32> c;
    bit<32> d;
    bit<32> e;
    bit<32> next;
    bit<32> advance;
    bit<8> session;
    bit<1> bit_a;
    bit<1> bit_b;
}

struct pair_t {
    bit<32> lo;
    bit<32> hi;
}

parser IngressParser(
    packet_in pkt, out headers_t hdr, out metadata_t meta, out ingress_intrinsic_metadata_t ig_intr_md)
{
    state start {
        pkt.extract(ig_intr_md);
        pkt.advance(PORT_METADATA_SIZE);
        pkt.extract(hdr.seg);
        transition accept;
    }
}

parser EgressParser(
    packet_in pkt, out headers_t hdr, out metadata_t meta, out egress_intrinsic_metadata_t eg_intr_md)
{
    state start {
        pkt.extract(eg_intr_md);
        pkt.extract(hdr.seg);
        transition accept;
    }
}
