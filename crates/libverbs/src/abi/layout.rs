//! Compares the structures with those of the header that is installed: a small C program prints sizes and offsets.
use super::*;
use std::fmt::Write;
use std::mem::{offset_of, size_of};
use std::process::Command;

/// What C has to find for a type and its members, as lines `expression value`.
macro_rules! shapes {
    ($($rust:ty = $c:literal { $($member:ident $(as $other:literal)?),* $(,)? })+) => {
        vec![$(
            (format!("sizeof({})", $c), size_of::<$rust>()),
            $((format!("offsetof({}, {})", $c, shapes!(@name $member $($other)?)), offset_of!($rust, $member)),)*
        )+]
    };
    (@name $member:ident) => { stringify!($member) };
    (@name $member:ident $other:literal) => { $other };
}

fn of_contexts() -> Vec<(String, usize)> {
    shapes! {
        IbvDevice = "struct ibv_device" { node_type, transport_type, name, dev_name, dev_path, ibdev_path }
        IbvDeviceAttr = "struct ibv_device_attr" {
            node_guid, max_mr_size, vendor_id, max_qp, device_cap_flags, max_sge_rd, max_cqe, max_qp_rd_atom, atomic_cap,
            max_mcast_grp, max_ah, max_srq_sge, max_pkeys, local_ca_ack_delay, phys_port_cnt,
        }
        IbvDeviceAttrEx = "struct ibv_device_attr_ex" {
            comp_mask, odp_caps, completion_timestamp_mask, hca_core_clock, device_cap_flags_ex, tso_caps, rss_caps,
            max_wq_type_rq, packet_pacing_caps, raw_packet_caps, tm_caps, cq_mod_caps, max_dm_size, pci_atomic_caps,
            xrc_odp_caps, phys_port_cnt_ex,
        }
        IbvPortAttr = "struct ibv_port_attr" {
            active_mtu, gid_tbl_len, port_cap_flags, max_msg_sz, qkey_viol_cntr, pkey_tbl_len, lid, sm_lid, lmc,
            max_vl_num, active_width, active_speed, phys_state, link_layer, flags, port_cap_flags2,
        }
        IbvGidEntry = "struct ibv_gid_entry" { gid, gid_index, port_num, gid_type, ndev_ifindex }
        IbvValuesEx = "struct ibv_values_ex" { comp_mask, raw_clock }
        IbvContextOps = "struct ibv_context_ops" {
            alloc_mw, bind_mw, dealloc_mw, poll_cq, req_notify_cq, post_srq_recv, post_send, post_recv,
        }
        IbvContext = "struct ibv_context" { ops, cmd_fd, async_fd, num_comp_vectors, mutex, abi_compat }
        VerbsContext = "struct verbs_context" {
            query_port, advise_mr, alloc_null_mr, counters as "read_counters", device_memory as "reg_dm_mr",
            flow_actions as "modify_flow_action_esp", modify_qp_rate_limit, parent_domains as "alloc_parent_domain",
            modify_cq, post_srq_ops, work_queues as "destroy_rwq_ind_table", query_rt_values, create_cq_ex,
            private as "priv", query_device_ex, destroy_flow as "ibv_destroy_flow",
            create_flow as "ibv_create_flow", open_qp, create_qp_ex, get_srq_num,
            create_srq_ex, open_xrcd, close_xrcd, sz, context,
        }
        IbvCompChannel = "struct ibv_comp_channel" { context, fd, refcnt }
        IbvAsyncEvent = "struct ibv_async_event" { element, event_type }
    }
}

fn of_objects() -> Vec<(String, usize)> {
    shapes! {
        IbvGid = "union ibv_gid" { raw }
        IbvPd = "struct ibv_pd" { context, handle }
        IbvMr = "struct ibv_mr" { context, pd, addr, length, handle, lkey, rkey }
        IbvMw = "struct ibv_mw" { context, pd, rkey, handle, kind as "type" }
        IbvFlowAttr = "struct ibv_flow_attr" { comp_mask, kind as "type", size, priority, num_of_specs, port, flags }
        IbvFlow = "struct ibv_flow" { comp_mask, context, handle }
        IbvMwBindInfo = "struct ibv_mw_bind_info" { mr, addr, length, mw_access_flags }
        IbvGrh = "struct ibv_grh" { version_tclass_flow, paylen, next_hdr, hop_limit, sgid, dgid }
        IbvAhAttr = "struct ibv_ah_attr" { grh, dlid, sl, src_path_bits, static_rate, is_global, port_num }
        IbvGlobalRoute = "struct ibv_global_route" { dgid, flow_label, sgid_index, hop_limit, traffic_class }
        IbvAh = "struct ibv_ah" { context, pd, handle }
        IbvSrqAttr = "struct ibv_srq_attr" { max_wr, max_sge, srq_limit }
        IbvSrqInitAttr = "struct ibv_srq_init_attr" { srq_context, attr }
        IbvSrqInitAttrEx = "struct ibv_srq_init_attr_ex" { comp_mask, srq_type, pd, xrcd, cq, tm_cap }
        IbvXrcd = "struct ibv_xrcd" { context }
        IbvXrcdInitAttr = "struct ibv_xrcd_init_attr" { comp_mask, fd, oflags }
        IbvSrq = "struct ibv_srq" { context, srq_context, pd, handle, mutex, cond, events_completed }
        IbvQpCap = "struct ibv_qp_cap" { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data }
        IbvQpInitAttr = "struct ibv_qp_init_attr" { qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all }
        IbvQpInitAttrEx = "struct ibv_qp_init_attr_ex" {
            qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all, comp_mask, pd, xrcd, create_flags,
            max_tso_header, rwq_ind_tbl, rx_hash_conf, source_qpn, send_ops_flags,
        }
        RxHashConf = "struct ibv_rx_hash_conf" {
            function as "rx_hash_function", key_len as "rx_hash_key_len", key as "rx_hash_key",
            fields_mask as "rx_hash_fields_mask",
        }
        IbvQpAttr = "struct ibv_qp_attr" {
            qp_state, cur_qp_state, path_mtu, path_mig_state, qkey, rq_psn, sq_psn, dest_qp_num, qp_access_flags, cap,
            ah_attr, alt_ah_attr, pkey_index, alt_pkey_index, en_sqd_async_notify, sq_draining, max_rd_atomic,
            max_dest_rd_atomic, min_rnr_timer, port_num, timeout, retry_cnt, rnr_retry, alt_port_num, alt_timeout,
            rate_limit,
        }
        IbvQp = "struct ibv_qp" {
            context, qp_context, pd, send_cq, recv_cq, srq, handle, qp_num, state, qp_type, mutex, cond,
            events_completed,
        }
        IbvCq = "struct ibv_cq" {
            context, channel, cq_context, handle, cqe, mutex, cond, comp_events_completed, async_events_completed,
        }
        IbvCqInitAttrEx = "struct ibv_cq_init_attr_ex" {
            cqe, cq_context, channel, comp_vector, wc_flags, comp_mask, flags, parent_domain,
        }
        IbvEce = "struct ibv_ece" { vendor_id, options, comp_mask }
    }
}

fn of_work() -> Vec<(String, usize)> {
    shapes! {
        IbvSge = "struct ibv_sge" { addr, length, lkey }
        IbvRecvWr = "struct ibv_recv_wr" { wr_id, next, sg_list, num_sge }
        IbvSendWr = "struct ibv_send_wr" {
            wr_id, next, sg_list, num_sge, opcode, send_flags, imm_data, wr, remote_srqn as "qp_type", bind_mw,
        }
        IbvWc = "struct ibv_wc" {
            wr_id, status, opcode, vendor_err, byte_len, imm_data, qp_num, src_qp, wc_flags, pkey_index, slid, sl,
            dlid_path_bits,
        }
        IbvDataBuf = "struct ibv_data_buf" { addr, length }
        IbvQpEx = "struct ibv_qp_ex" {
            qp_base, comp_mask, wr_id, wr_flags, wr_atomic_cmp_swp, wr_atomic_fetch_add, wr_bind_mw, wr_local_inv,
            wr_rdma_read, wr_rdma_write, wr_rdma_write_imm, wr_send, wr_send_imm, wr_send_inv, wr_send_tso,
            wr_set_ud_addr, wr_set_xrc_srqn, wr_set_inline_data, wr_set_inline_data_list, wr_set_sge, wr_set_sge_list,
            wr_start, wr_complete, wr_abort, wr_atomic_write,
        }
        IbvCqEx = "struct ibv_cq_ex" {
            comp_mask, status, wr_id, start_poll, next_poll, end_poll, read_opcode, read_vendor_err, read_byte_len,
            read_imm_data, read_qp_num, read_src_qp, read_wc_flags, read_slid, read_sl, read_dlid_path_bits,
            read_completion_ts, read_cvlan, read_flow_tag, read_tm_info, read_completion_wallclock_ns,
        }
    }
}

fn of_connections() -> Vec<(String, usize)> {
    shapes! {
        RdmaIbAddr = "struct rdma_ib_addr" { sgid, dgid, pkey }
        RdmaAddr = "struct rdma_addr" { src as "src_storage", dst as "dst_storage", ibaddr as "addr" }
        RdmaRoute = "struct rdma_route" { addr, path_rec, num_paths }
        RdmaCmId = "struct rdma_cm_id" {
            verbs, channel, context, qp, route, ps, port_num, event, send_cq_channel, send_cq, recv_cq_channel, recv_cq,
            srq, pd, qp_type,
        }
        RdmaConnParam = "struct rdma_conn_param" {
            private_data, private_data_len, responder_resources, initiator_depth, flow_control, retry_count,
            rnr_retry_count, srq, qp_num,
        }
        RdmaUdParam = "struct rdma_ud_param" { private_data, private_data_len, ah_attr, qp_num, qkey }
        RdmaCmEvent = "struct rdma_cm_event" { id, listen_id, event, status, param }
        RdmaAddrInfo = "struct rdma_addrinfo" {
            ai_flags, ai_family, ai_qp_type, ai_port_space, ai_src_len, ai_dst_len, ai_src_addr, ai_dst_addr,
            ai_src_canonname, ai_dst_canonname, ai_route_len, ai_route, ai_connect_len, ai_connect, ai_next,
        }
    }
}

#[test]
fn structures_are_those_of_the_header() {
    let mut expected = of_contexts();
    expected.extend(of_objects());
    expected.extend(of_work());
    expected.extend(of_connections());
    for (member, at) in [
        ("wr.atomic.compare_add", offset_of!(WrAtomic, compare_add)),
        ("wr.atomic.swap", offset_of!(WrAtomic, swap)),
        ("wr.atomic.rkey", offset_of!(WrAtomic, rkey)),
        ("wr.rdma.rkey", offset_of!(WrRdma, rkey)),
        ("wr.ud.remote_qpn", offset_of!(WrUd, remote_qpn)),
        ("wr.ud.remote_qkey", offset_of!(WrUd, remote_qkey)),
    ] {
        expected.push((format!("offsetof(struct ibv_send_wr, {member})"), offset_of!(IbvSendWr, wr) + at));
    }
    let mut program = String::from("#include <stdio.h>\n#include <rdma/rdma_cma.h>\nint main(void) {\n");
    for (expression, _) in &expected {
        writeln!(program, "printf(\"%zu\\n\", {expression});").unwrap();
    }
    program += "}\n";
    let folder = std::env::temp_dir().join(format!("verbs-layout-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (source, binary) = (folder.join("layout.c"), folder.join("layout"));
    std::fs::write(&source, program).unwrap();
    let built = Command::new("cc").arg("-o").arg(&binary).arg(&source).output().unwrap();
    assert!(built.status.success(), "tests/setup installs the header: {}", String::from_utf8_lossy(&built.stderr));
    let printed = String::from_utf8(Command::new(&binary).output().unwrap().stdout).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let found: Vec<usize> = printed.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(found.len(), expected.len());
    for ((expression, ours), theirs) in expected.iter().zip(found) {
        assert_eq!(*ours, theirs, "{expression}");
    }
}
