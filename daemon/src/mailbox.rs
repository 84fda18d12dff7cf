//! Messages between the daemon's threads: a queue with a descriptor to poll.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};

use nix::sys::eventfd::{EfdFlags, EventFd};

#[derive(Debug)]
struct Shared<T> {
    queue: Mutex<VecDeque<T>>,
    ready: EventFd,
}

/// The sending end. Sending never blocks; how many messages can be under way is bounded by the work that causes them.
#[derive(Debug)]
pub(crate) struct Sender<T>(Arc<Shared<T>>);

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// The receiving end.
#[derive(Debug)]
pub(crate) struct Mailbox<T>(Arc<Shared<T>>);

/// A new pair.
///
/// # Errors
/// No descriptor is to be had.
pub(crate) fn mailbox<T>() -> io::Result<(Sender<T>, Mailbox<T>)> {
    let ready = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
    let shared = Arc::new(Shared { queue: Mutex::new(VecDeque::new()), ready });
    Ok((Sender(Arc::clone(&shared)), Mailbox(shared)))
}

impl<T> Sender<T> {
    /// Puts a message into the box.
    pub(crate) fn send(&self, message: T) {
        self.0.queue.lock().unwrap_or_else(PoisonError::into_inner).push_back(message);
        // Fails only when the counter is full, and then the descriptor is readable already.
        let _ = self.0.ready.write(1);
    }
}

impl<T> Mailbox<T> {
    /// Everything that is there, oldest first; clears the readiness of [`Mailbox::fd`].
    pub(crate) fn take(&self) -> VecDeque<T> {
        // Before looking: what is sent in between makes the descriptor readable again.
        let _ = self.0.ready.read();
        std::mem::take(&mut *self.0.queue.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// How many are there.
    pub(crate) fn len(&self) -> usize {
        self.0.queue.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Readable when there are messages.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.ready.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    fn readable<T>(mailbox: &Mailbox<T>) -> bool {
        let mut fds = [PollFd::new(mailbox.fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::ZERO).unwrap() == 1
    }

    #[test]
    fn messages_come_in_order_and_wake_the_receiver() {
        let (sender, mailbox) = mailbox().unwrap();
        assert!(!readable(&mailbox));
        let other = sender.clone();
        std::thread::spawn(move || other.send(1)).join().unwrap();
        sender.send(2);
        assert!(readable(&mailbox) && mailbox.len() == 2);
        assert_eq!(mailbox.take(), [1, 2]);
        assert!(!readable(&mailbox) && mailbox.take().is_empty());
    }
}
