//! What whoever started this process had decided about SIGPIPE. The standard library ignores it from the start on, before `main`, so what was found has
//! to be noted even earlier.

use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether it was ignored when this process began.
static IGNORED: AtomicBool = AtomicBool::new(false);

/// The loader calls it before `main`, and before the standard library does anything.
#[used]
// SAFETY: the section holds pointers to functions of the C calling convention, which get arguments that this one does not look at.
#[unsafe(link_section = ".init_array")]
static NOTE: extern "C" fn() = note;

extern "C" fn note() {
    // SAFETY: a sigaction of zeros is a valid one: no handler, no flags, an empty mask.
    let mut found: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: nothing is set, and there is room for what is there.
    let rc = unsafe { libc::sigaction(libc::SIGPIPE, ptr::null(), &raw mut found) };
    IGNORED.store(rc == 0 && found.sa_sigaction == libc::SIG_IGN, Ordering::Relaxed);
}

/// Has SIGPIPE do what it did when this process began, for a program that is about to take its place: whether it dies of a pipe that nobody
/// reads is between that program and whoever started it.
pub fn restore() {
    set(if IGNORED.load(Ordering::Relaxed) { libc::SIG_IGN } else { libc::SIG_DFL });
}

/// Ignores it, as programs of the standard library do: that program could not be run.
pub fn ignore() {
    set(libc::SIG_IGN);
}

fn set(to: libc::sighandler_t) {
    // SAFETY: neither of the two that are given is a handler. It cannot fail for this signal.
    unsafe { libc::signal(libc::SIGPIPE, to) };
}
