// What a program for Tofino 2 finds declared: metadata of the architecture, with the names, widths and order of its
// public documentation. Externs are known to the compiler itself.
typedef bit<9> PortId_t;
typedef bit<16> MulticastGroupId_t;
typedef bit<7> QueueId_t;
typedef bit<4> MirrorType_t;
typedef bit<8> MirrorId_t;
typedef bit<3> ResubmitType_t;
typedef bit<3> DigestType_t;
typedef bit<16> ReplicationId_t;
typedef error ParserError_t;

const bit<32> PORT_METADATA_SIZE = 192;

const bit<16> PARSER_ERROR_OK = 0x0000;
const bit<16> PARSER_ERROR_NO_MATCH = 0x0001;
const bit<16> PARSER_ERROR_PARTIAL_HDR = 0x0002;

enum HashAlgorithm_t { IDENTITY, RANDOM, XOR8, XOR16, XOR32, CRC8, CRC16, CRC32, CRC64, CUSTOM }
enum MeterType_t { PACKETS, BYTES }
enum CounterType_t { PACKETS, BYTES, PACKETS_AND_BYTES }
enum MathOp_t { MUL, SQR, SQRT, DIV, RSQR, RSQRT }
enum bit<8> MeterColor_t { GREEN = 0, YELLOW = 1, RED = 3 }

header ingress_intrinsic_metadata_t {
    bit<1> resubmit_flag;
    bit<1> _pad1;
    bit<2> packet_version;
    bit<3> _pad2;
    PortId_t ingress_port;
    bit<48> ingress_mac_tstamp;
}

struct ingress_intrinsic_metadata_for_tm_t {
    PortId_t ucast_egress_port;
    bit<1> bypass_egress;
    bit<1> deflect_on_drop;
    bit<3> ingress_cos;
    QueueId_t qid;
    bit<3> icos_for_copy_to_cpu;
    bit<1> copy_to_cpu;
    bit<2> packet_color;
    bit<1> disable_ucast_cutthru;
    bit<1> enable_mcast_cutthru;
    MulticastGroupId_t mcast_grp_a;
    MulticastGroupId_t mcast_grp_b;
    bit<13> level1_mcast_hash;
    bit<13> level2_mcast_hash;
    bit<16> level1_exclusion_id;
    bit<9> level2_exclusion_id;
    bit<16> rid;
}

struct ingress_intrinsic_metadata_from_parser_t {
    bit<48> global_tstamp;
    bit<32> global_ver;
    bit<16> parser_err;
}

struct ingress_intrinsic_metadata_for_deparser_t {
    bit<3> drop_ctl;
    DigestType_t digest_type;
    ResubmitType_t resubmit_type;
    MirrorType_t mirror_type;
    bit<1> mirror_io_select;
    bit<13> mirror_hash;
    bit<3> mirror_ingress_cos;
    bit<1> mirror_deflect_on_drop;
    bit<1> mirror_multicast_ctrl;
    PortId_t mirror_egress_port;
    QueueId_t mirror_qid;
    bit<8> mirror_coalesce_length;
    bit<32> adv_flow_ctl;
    bit<14> mtu_trunc_len;
    bit<1> mtu_trunc_err_f;
    bit<1> pktgen;
    bit<14> pktgen_address;
    bit<10> pktgen_length;
}

header egress_intrinsic_metadata_t {
    bit<7> _pad0;
    PortId_t egress_port;
    bit<5> _pad1;
    bit<19> enq_qdepth;
    bit<6> _pad2;
    bit<2> enq_congest_stat;
    bit<32> enq_tstamp;
    bit<5> _pad3;
    bit<19> deq_qdepth;
    bit<6> _pad4;
    bit<2> deq_congest_stat;
    bit<8> app_pool_congest_stat;
    bit<32> deq_timedelta;
    bit<16> egress_rid;
    bit<7> _pad5;
    bit<1> egress_rid_first;
    bit<1> _pad6;
    QueueId_t egress_qid;
    bit<5> _pad7;
    bit<3> egress_cos;
    bit<7> _pad8;
    bit<1> deflection_flag;
    bit<16> pkt_length;
    bit<8> _pad9;
}

struct egress_intrinsic_metadata_from_parser_t {
    bit<48> global_tstamp;
    bit<32> global_ver;
    bit<16> parser_err;
}

struct egress_intrinsic_metadata_for_deparser_t {
    bit<3> drop_ctl;
    MirrorType_t mirror_type;
    bit<1> coalesce_flush;
    bit<7> coalesce_length;
    bit<1> mirror_io_select;
    bit<13> mirror_hash;
    bit<3> mirror_ingress_cos;
    bit<1> mirror_deflect_on_drop;
    bit<1> mirror_multicast_ctrl;
    PortId_t mirror_egress_port;
    QueueId_t mirror_qid;
    bit<8> mirror_coalesce_length;
    bit<32> adv_flow_ctl;
    bit<14> mtu_trunc_len;
    bit<1> mtu_trunc_err_f;
}

struct egress_intrinsic_metadata_for_output_port_t {
    bit<1> capture_tstamp_on_tx;
    bit<1> update_delay_on_tx;
}

header pktgen_timer_header_t {
    bit<2> _pad1;
    bit<2> pipe_id;
    bit<4> app_id;
    bit<8> _pad2;
    bit<16> batch_id;
    bit<16> packet_id;
}
