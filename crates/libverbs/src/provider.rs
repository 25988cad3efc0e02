//! Symbols that libraries of network cards (libmlx5, libefa, ...) export: programs link those for functions of such
//! cards, and the dynamic linker needs every name. They register with this library when they are loaded, and are never
//! asked for a device, since none is theirs. So none of the other functions runs.
use crate::errno;
use libc::c_int;

/// Functions that would make or change objects of such a card.
macro_rules! of_cards {
    ($($name:ident)+) => {
        $(#[unsafe(no_mangle)]
        extern "C" fn $name() -> c_int {
            errno::number(Err(libc::EOPNOTSUPP))
        })+
    };
}

of_cards! {
    execute_ioctl
    ibv_cmd_advise_mr
    ibv_cmd_alloc_dm
    ibv_cmd_alloc_mw
    ibv_cmd_alloc_pd
    ibv_cmd_attach_mcast
    ibv_cmd_close_xrcd
    ibv_cmd_create_ah
    ibv_cmd_create_counters
    ibv_cmd_create_cq
    ibv_cmd_create_cq_ex
    ibv_cmd_create_flow
    ibv_cmd_create_flow_action_esp
    ibv_cmd_create_qp
    ibv_cmd_create_qp_ex
    ibv_cmd_create_qp_ex2
    ibv_cmd_create_rwq_ind_table
    ibv_cmd_create_srq
    ibv_cmd_create_srq_ex
    ibv_cmd_create_wq
    ibv_cmd_dealloc_mw
    ibv_cmd_dealloc_pd
    ibv_cmd_dereg_mr
    ibv_cmd_destroy_ah
    ibv_cmd_destroy_counters
    ibv_cmd_destroy_cq
    ibv_cmd_destroy_flow
    ibv_cmd_destroy_flow_action
    ibv_cmd_destroy_qp
    ibv_cmd_destroy_rwq_ind_table
    ibv_cmd_destroy_srq
    ibv_cmd_destroy_wq
    ibv_cmd_detach_mcast
    ibv_cmd_free_dm
    ibv_cmd_get_context
    ibv_cmd_modify_cq
    ibv_cmd_modify_flow_action_esp
    ibv_cmd_modify_qp
    ibv_cmd_modify_qp_ex
    ibv_cmd_modify_srq
    ibv_cmd_modify_wq
    ibv_cmd_open_qp
    ibv_cmd_open_xrcd
    ibv_cmd_poll_cq
    ibv_cmd_post_recv
    ibv_cmd_post_send
    ibv_cmd_post_srq_recv
    ibv_cmd_query_context
    ibv_cmd_query_device_any
    ibv_cmd_query_mr
    ibv_cmd_query_port
    ibv_cmd_query_qp
    ibv_cmd_query_srq
    ibv_cmd_read_counters
    ibv_cmd_reg_dm_mr
    ibv_cmd_reg_dmabuf_mr
    ibv_cmd_reg_mr
    ibv_cmd_req_notify_cq
    ibv_cmd_rereg_mr
    ibv_cmd_resize_cq
}

/// Functions that return a pointer or nothing.
macro_rules! of_cards_without_number {
    ($($name:ident)+) => {
        $(#[unsafe(no_mangle)]
        extern "C" fn $name() -> *mut libc::c_void {
            errno::pointer(Err(libc::EOPNOTSUPP))
        })+
    };
}

of_cards_without_number! {
    __verbs_log
    _verbs_init_and_alloc_context
    verbs_init_cq
    verbs_open_device
    verbs_register_driver_34
    verbs_set_ops
    verbs_uninit_context
}

/// How many attributes of a request are left; of none, none.
#[unsafe(no_mangle)]
extern "C" fn __ioctl_final_num_attrs() -> u32 {
    0
}

/// A variable: whether objects of a card that was taken out count as destroyed.
#[unsafe(no_mangle)]
static verbs_allow_disassociate_destroy: bool = false;
