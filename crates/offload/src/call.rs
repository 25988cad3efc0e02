//! A call of an offload function: a coroutine with a stack of its own, and what the function may ask of the engine.
//! SmartNS, section 3.5 and table 2.
use crate::dma::{Ended, Host, Lane, Operation, Submitted, Whose};
use crate::library::{Entry, register_opcode};
use crate::limits::{OUTSTANDING_DMA, RESPONSE_BYTES, WAITS_A_QUANTUM};
use crate::status::now;
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use offload_api::{Calls, Context, VERSION};
use std::cell::{Cell, RefCell, UnsafeCell};
use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;
use verbs::Operand;

/// What functions may call.
pub(crate) static CALLS: Calls =
    Calls { version: VERSION, register_opcode, alloc_resp, submit_dma, wait_dma_finish, submit_resp, submit_resp_to };

/// A message's memory.
#[derive(Clone, Copy)]
pub(crate) struct Memory {
    /// The request.
    pub(crate) request: *mut u8,
    /// Room for the response: [`RESPONSE_BYTES`].
    pub(crate) response: *mut u8,
}

/// A request.
pub(crate) struct Asked {
    /// Its memory, which is the call's until its end.
    pub(crate) memory: Memory,
    /// Its bytes.
    pub(crate) bytes: u32,
    /// Its opcode.
    pub(crate) opcode: u16,
    /// Its queue pair.
    pub(crate) qp: u32,
    /// Whose memory it may reach.
    pub(crate) host: Arc<Host>,
    /// When its time is over, by [`now`].
    pub(crate) deadline: u64,
}

/// What a function responds, beside its status.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Payload {
    /// Which bytes of the response's room.
    pub(crate) bytes: Range<usize>,
    /// They are written there, in the client's memory; without it they are sent.
    pub(crate) to: Option<Operand>,
}

/// Why a call gave its thread to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Suspended {
    /// It has not, or it goes on when it is resumed.
    No,
    /// Until an operation has ended.
    For(i64),
    /// Its time is over.
    Over,
}

/// An operation that its function has not waited for yet; `None` before its end.
struct Outstanding {
    id: i64,
    result: Option<c_int>,
}

/// What the engine keeps behind a function's context.
#[repr(C)]
struct State {
    /// The function may write there.
    context: UnsafeCell<Context>,
    yielder: Cell<*const Yielder<(), ()>>,
    host: Arc<Host>,
    lane: Rc<Lane>,
    response: *mut u8,
    /// What was allocated of the response's room.
    allocated: Cell<usize>,
    /// What is to be sent of it.
    submitted: RefCell<Option<Payload>>,
    outstanding: RefCell<Vec<Outstanding>>,
    next_id: Cell<i64>,
    waits: Cell<u32>,
    suspended: Cell<Suspended>,
    deadline: u64,
    place: usize,
}

/// How far a call has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It goes on when it is resumed.
    Ready,
    /// It waits for DMA.
    Waits,
    /// It has ended, or was ended at its time limit; the engine may still wait for DMA ([`Call::is_quiet`]).
    Ended(End),
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    /// What the function returned, and its response.
    Returned(c_int, Payload),
    /// Its time was over.
    TimedOut,
}

/// A call that is under way.
pub(crate) struct Call {
    coroutine: Option<Coroutine<(), (), c_int, DefaultStack>>,
    /// Made by a box, and this call's alone; the function has the pointer, too.
    state: NonNull<State>,
    /// The function, which lives as long as it runs.
    pub(crate) entry: Entry,
}

impl Call {
    /// A call that has not begun yet, at this place of its thread's table.
    pub(crate) fn new(asked: Asked, entry: Entry, lane: &Rc<Lane>, place: usize, stack: DefaultStack) -> Call {
        let context = Context {
            request: asked.memory.request.cast_const().cast(),
            request_size: asked.bytes.into(),
            opcode: asked.opcode.into(),
            qp: asked.qp,
        };
        let state = Box::new(State {
            context: UnsafeCell::new(context),
            yielder: Cell::new(std::ptr::null()),
            host: asked.host,
            lane: Rc::clone(lane),
            response: asked.memory.response,
            allocated: Cell::new(0),
            submitted: RefCell::new(None),
            outstanding: RefCell::default(),
            next_id: Cell::new(0),
            waits: Cell::new(0),
            suspended: Cell::new(Suspended::No),
            deadline: asked.deadline,
            place,
        });
        let state = NonNull::from(Box::leak(state));
        let function = entry.function;
        let coroutine = Coroutine::with_stack(stack, move |yielder: &Yielder<(), ()>, ()| {
            // SAFETY: the state lives as long as the coroutine, and is used by this thread only.
            unsafe { state.as_ref() }.yielder.set(yielder);
            // SAFETY: include/offload.h: a function of this type, which may use the context until it returns.
            unsafe { function(state.as_ptr().cast()) }
        });
        Call { coroutine: Some(coroutine), state, entry }
    }

    fn state(&self) -> &State {
        // SAFETY: it lives as long as the call.
        unsafe { self.state.as_ref() }
    }

    /// Runs the function until it waits, or returns. Its stack is given back with its end.
    pub(crate) fn run(&mut self, stacks: &mut Vec<DefaultStack>) -> Progress {
        self.state().suspended.set(Suspended::No);
        let Some(coroutine) = &mut self.coroutine else { return Progress::Waits };
        let resumed = coroutine.resume(());
        let state = self.state();
        let end = match resumed {
            CoroutineResult::Return(value) => End::Returned(value, state.submitted.take().unwrap_or_default()),
            CoroutineResult::Yield(()) => match state.suspended.get() {
                Suspended::No => return Progress::Ready,
                Suspended::For(_) => return Progress::Waits,
                Suspended::Over => End::TimedOut,
            },
        };
        if self.is_quiet() {
            self.free_stack(stacks);
        }
        Progress::Ended(end)
    }

    /// Its time is over while it waits.
    pub(crate) fn time_out(&mut self) -> End {
        self.state().suspended.set(Suspended::Over);
        End::TimedOut
    }

    /// Operations that its function has submitted.
    pub(crate) fn operations(&self) -> u64 {
        self.state().next_id.get() as u64
    }

    /// When its time is over.
    pub(crate) fn deadline(&self) -> u64 {
        self.state().deadline
    }

    /// An operation has ended. Whether the call goes on now.
    pub(crate) fn ended(&self, ended: Ended) -> bool {
        let mut outstanding = self.state().outstanding.borrow_mut();
        if let Some(of) = outstanding.iter_mut().find(|of| of.id == ended.whose.id) {
            of.result = Some(ended.result);
        }
        self.state().suspended.get() == Suspended::For(ended.whose.id)
    }

    /// No operation is under way: nobody touches its memory.
    pub(crate) fn is_quiet(&self) -> bool {
        self.state().outstanding.borrow().iter().all(|of| of.result.is_some())
    }

    /// Gives back the stack of a call that has ended and is quiet. A function that did not return is left where it is.
    pub(crate) fn free_stack(&mut self, stacks: &mut Vec<DefaultStack>) {
        if let Some(mut coroutine) = self.coroutine.take() {
            if !coroutine.done() {
                // SAFETY: the function's frames are C's, or Rust's that no longer run: what they own is not freed, and
                // nothing refers to them, because no operation is under way.
                unsafe { coroutine.force_reset() };
            }
            stacks.push(coroutine.into_stack());
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        // A suspended coroutine must not be unwound: there are frames of C on its stack.
        self.free_stack(&mut Vec::new());
        // SAFETY: a box made it, and the coroutine, which had it as well, is gone.
        drop(unsafe { Box::from_raw(self.state.as_ptr()) });
    }
}

impl State {
    fn is_over(&self) -> bool {
        now() > self.deadline
    }

    /// Lets others run.
    fn suspend(&self, why: Suspended) {
        self.suspended.set(why);
        // SAFETY: it was set when the coroutine began, on whose stack this runs.
        unsafe { (*self.yielder.get()).suspend(()) };
    }

    /// Submits a response, which must lie in the room that was allocated: 0, or a negative error number.
    fn submit(&self, addr: *const c_void, size: usize, to: Option<Operand>) -> c_int {
        let at = (addr as usize).wrapping_sub(self.response as usize);
        let end = at.checked_add(size).filter(|end| *end <= self.allocated.get());
        match (end, &mut *self.submitted.borrow_mut()) {
            (Some(end), submitted @ None) => {
                *submitted = Some(Payload { bytes: at..end, to });
                0
            }
            _ => -libc::EINVAL,
        }
    }

    /// Counts a wait; every so many, others run, and the time is read.
    fn count_wait(&self) {
        let waits = self.waits.get().wrapping_add(1);
        self.waits.set(waits);
        if waits % WAITS_A_QUANTUM == 0 {
            self.suspend(if self.is_over() { Suspended::Over } else { Suspended::No });
        }
    }
}

/// The state behind a context.
///
/// # Safety
/// The engine gave the context to the function that is running.
unsafe fn state<'a>(context: *mut Context) -> &'a State {
    // SAFETY: the context is the first field of a state, and the pointer was made of the whole of it.
    unsafe { &*context.cast::<State>() }
}

/// `alloc_resp`.
unsafe extern "C" fn alloc_resp(context: *mut Context, size: usize) -> *mut c_void {
    // SAFETY: include/offload.h: the context of this call.
    let state = unsafe { state(context) };
    if state.allocated.get() != 0 || size == 0 || size > RESPONSE_BYTES {
        return std::ptr::null_mut();
    }
    state.allocated.set(size);
    state.response.cast()
}

/// `submit_dma`.
unsafe extern "C" fn submit_dma(
    context: *mut Context,
    op: c_int,
    host_addr: u64,
    arm_addr: *mut c_void,
    size: usize,
) -> i64 {
    // SAFETY: include/offload.h: the context of this call.
    let state = unsafe { state(context) };
    let Some(operation) = Operation::new(op, host_addr, arm_addr.cast(), size) else {
        return -i64::from(libc::EINVAL);
    };
    let id = state.next_id.get();
    // SAFETY: include/offload.h: so many bytes are the function's, until it has waited.
    match unsafe { state.host.submit(&operation) } {
        Err(number) => return -i64::from(number),
        Ok(Submitted::Done) => {}
        Ok(Submitted::Waits) => {
            let mut outstanding = state.outstanding.borrow_mut();
            if outstanding.len() >= OUTSTANDING_DMA {
                return -i64::from(libc::EAGAIN);
            }
            outstanding.push(Outstanding { id, result: None });
            // SAFETY: as above; the call lives until the operation's end was taken.
            unsafe { state.lane.submit(&state.host, operation, Whose { call: state.place, id }) };
        }
    }
    state.next_id.set(id + 1);
    id
}

/// `wait_dma_finish`.
unsafe extern "C" fn wait_dma_finish(context: *mut Context, id: i64) -> c_int {
    // SAFETY: include/offload.h: the context of this call.
    let state = unsafe { state(context) };
    if id < 0 {
        return id as c_int;
    }
    state.count_wait();
    loop {
        let mut outstanding = state.outstanding.borrow_mut();
        let Some(place) = outstanding.iter().position(|of| of.id == id) else {
            // It was carried out when it was submitted, or waited for before.
            return if id < state.next_id.get() { 0 } else { -libc::EINVAL };
        };
        if let Some(result) = outstanding[place].result {
            outstanding.swap_remove(place);
            return result;
        }
        drop(outstanding);
        state.suspend(Suspended::For(id));
    }
}

/// `submit_resp`.
unsafe extern "C" fn submit_resp(context: *mut Context, addr: *const c_void, size: usize) -> c_int {
    // SAFETY: include/offload.h: the context of this call.
    unsafe { state(context) }.submit(addr, size, None)
}

/// `submit_resp_to`.
unsafe extern "C" fn submit_resp_to(
    context: *mut Context,
    addr: *const c_void,
    size: usize,
    address: u64,
    key: u32,
) -> c_int {
    // SAFETY: include/offload.h: the context of this call.
    unsafe { state(context) }.submit(addr, size, Some(Operand { address, key }))
}
