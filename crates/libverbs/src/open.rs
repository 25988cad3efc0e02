//! Opening and closing the device, and the table of what programs call through a context.
use crate::abi::{IbvContext, IbvContextOps, IbvDevice, VerbsContext};
use crate::attachment::Attachment;
use crate::context::Context;
use crate::cq_calls;
use crate::device;
use crate::errno::{self, Result};
use crate::flows;
use crate::poll;
use crate::post;
use crate::qp_calls;
use crate::query;
use crate::shared_receive;
use crate::window;
use crate::xrc;
use libc::c_int;
use std::os::fd::AsRawFd;

#[unsafe(no_mangle)]
extern "C" fn ibv_open_device(device: *mut IbvDevice) -> *mut IbvContext {
    errno::pointer(open(device))
}

/// A context cannot be shared with another process: the daemon serves each one by itself.
#[unsafe(no_mangle)]
extern "C" fn ibv_import_device(_fd: c_int) -> *mut IbvContext {
    errno::pointer(Err(libc::EOPNOTSUPP))
}

/// Opens a device: an attachment of its own.
pub(crate) fn open(device: *mut IbvDevice) -> Result<*mut IbvContext> {
    let (attachment, events) = Attachment::new(device::name(device))?;
    Ok(Context::open(head(device, events.as_raw_fd()), attachment, events))
}

fn head(device: *mut IbvDevice, async_fd: c_int) -> VerbsContext {
    VerbsContext {
        query_port: query::query_port,
        advise_mr: 0,
        alloc_null_mr: 0,
        counters: [0; 4],
        device_memory: [0; 3],
        flow_actions: [0; 3],
        modify_qp_rate_limit: 0,
        parent_domains: [0; 3],
        modify_cq: 0,
        post_srq_ops: 0,
        work_queues: [0; 5],
        query_rt_values: query::query_rt_values,
        create_cq_ex: cq_calls::create_cq_ex,
        private: 0,
        query_device_ex: query::query_device_ex,
        destroy_flow: flows::destroy_flow,
        flow_placeholder: 0,
        create_flow: flows::create_flow,
        flow_placeholder_too: 0,
        open_qp: 0,
        create_qp_ex: qp_calls::create_qp_ex,
        get_srq_num: shared_receive::get_srq_num,
        create_srq_ex: shared_receive::create_srq_ex,
        open_xrcd: xrc::open_xrcd,
        close_xrcd: xrc::close_xrcd,
        placeholder: 0,
        sz: size_of::<VerbsContext>(),
        context: IbvContext {
            device,
            ops: IbvContextOps {
                compat_until_dereg_mr: [0; 7],
                alloc_mw: window::alloc_mw,
                bind_mw: window::bind_mw,
                dealloc_mw: window::dealloc_mw,
                compat_create_cq: 0,
                poll_cq: poll::poll_cq,
                req_notify_cq: cq_calls::req_notify_cq,
                compat_until_destroy_srq: [0; 7],
                post_srq_recv: shared_receive::post_srq_recv,
                compat_until_destroy_qp: [0; 4],
                post_send: post::post_send,
                post_recv: post::post_recv,
                compat_until_async_event: [0; 5],
            },
            cmd_fd: -1,
            async_fd,
            num_comp_vectors: 1,
            mutex: libc::PTHREAD_MUTEX_INITIALIZER,
            // The structure in front is there (`__VERBS_ABI_IS_EXTENDED`).
            abi_compat: std::ptr::without_provenance_mut(usize::MAX),
        },
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_close_device(context: *mut IbvContext) -> c_int {
    // SAFETY: `ibv_open_device` gave it, and the program uses it no more.
    let context = unsafe { Context::take(context) };
    // Objects that the program left have the attachment as well: the daemon removes them at once.
    context.attachment.close();
    0
}
