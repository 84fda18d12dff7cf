//! Opening and closing files where a hang harms nobody.
//!
//! `open` on a dead NFS server, `close` on a FUSE file or a device with dirty pages may sleep for as long as the storage is
//! silent, uninterruptibly. Both run on detached threads whose number is bounded; nobody ever joins them.

use std::collections::VecDeque;
use std::mem;
use std::os::fd::OwnedFd;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Stack of a background thread: it only makes system calls.
const STACK: usize = 64 * 1024;

/// Threads that close files, all of them possibly stuck.
const MAX_CLOSERS: usize = 4;

/// Descriptors waiting to be closed while all closers are stuck; beyond that a descriptor stays open for good.
const MAX_UNCLOSED: usize = 256;

/// How long an idle closer waits for work before it ends.
const IDLE_LINGER: Duration = Duration::from_secs(2);

struct Closers {
    queue: VecDeque<OwnedFd>,
    threads: usize,
    idle: usize,
}

static CLOSERS: Mutex<Closers> = Mutex::new(Closers { queue: VecDeque::new(), threads: 0, idle: 0 });
static WORK: Condvar = Condvar::new();

/// Closes `fd` soon, on another thread. Never blocks.
pub(crate) fn close(fd: OwnedFd) {
    let mut closers = CLOSERS.lock().unwrap_or_else(PoisonError::into_inner);
    if closers.queue.len() >= MAX_UNCLOSED {
        // Leaked on purpose: closing here could hang, and the process has 256 descriptors on dead storage already.
        mem::forget(fd);
        return;
    }
    closers.queue.push_back(fd);
    let wanted = closers.idle < closers.queue.len() && closers.threads < MAX_CLOSERS;
    if wanted && spawn("sanlock-close", closer) {
        closers.threads += 1;
    }
    WORK.notify_one();
}

fn closer() {
    let mut closers = CLOSERS.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        while let Some(fd) = closers.queue.pop_front() {
            drop(closers);
            drop(fd);
            closers = CLOSERS.lock().unwrap_or_else(PoisonError::into_inner);
        }
        closers.idle += 1;
        let waited;
        (closers, waited) = WORK.wait_timeout(closers, IDLE_LINGER).unwrap_or_else(PoisonError::into_inner);
        closers.idle -= 1;
        if waited.timed_out() && closers.queue.is_empty() {
            closers.threads -= 1;
            return;
        }
    }
}

/// Starts a detached thread; false if the system has none to give.
pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> bool {
    thread::Builder::new().name(name.to_owned()).stack_size(STACK).spawn(body).is_ok()
}
