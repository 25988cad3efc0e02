//! A child that shares this thread's memory and variables, until it runs its program or ends: of `vfork`, of
//! `posix_spawn`. The thread stands still meanwhile.
use std::cell::Cell;

thread_local! {
    /// The process whose thread made, or makes, such a child; 0 for none.
    static PARENT: Cell<u32> = const { Cell::new(0) };
}

/// This thread is about to make one.
pub(crate) fn begins() {
    PARENT.set(std::process::id());
}

/// True in the child.
pub(crate) fn is_child() -> bool {
    let parent = PARENT.get();
    parent != 0 && parent != std::process::id()
}

/// True once where this thread made one, which has ended or runs its program.
pub(crate) fn is_over() -> bool {
    PARENT.get() != 0 && !is_child() && PARENT.replace(0) != 0
}

/// After fork: the parent's thread has it.
pub(crate) fn forget() {
    PARENT.set(0);
}
