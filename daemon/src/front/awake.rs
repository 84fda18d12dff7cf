//! Sleep of the machine: when it wakes up, and for how long it has slept. Sleeps of this thread are counted in time that the machine is
//! awake, and go on as if nothing had been.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use sanlock_sys::clock;

/// Seconds since 1970 at which nothing waits any more: the year 2242. Larger ones the kernel may cut.
const NEVER: i64 = 1 << 33;

/// Sleep that is less than this is none, in milliseconds: that much comes of reading two clocks one after the other.
const SLEEP_MIN_MS: u64 = 1000;

/// See the module.
#[derive(Debug)]
pub(super) struct Awake {
    timer: TimerFd,
    /// How long the machine had slept when that was looked at last.
    asleep_ms: u64,
}

impl Awake {
    /// # Errors
    /// No descriptor is to be had.
    pub(super) fn new() -> io::Result<Self> {
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        let timer = TimerFd::new(ClockId::CLOCK_REALTIME, flags)?;
        // The kernel cancels it when the clock jumps, which it does whenever the machine has slept.
        let when = Expiration::OneShot(TimeSpec::new(NEVER, 0));
        let how = TimerSetTimeFlags::TFD_TIMER_ABSTIME | TimerSetTimeFlags::TFD_TIMER_CANCEL_ON_SET;
        timer.set(when, how)?;
        Ok(Self { timer, asleep_ms: clock::asleep_ms() })
    }

    /// Readable after the machine woke up, and after its clock was set.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }

    /// Makes it wait for the next time.
    pub(super) fn again(&self) {
        // ECANCELED is what was waited for.
        let _ = self.timer.wait();
    }

    /// The seconds that the machine has slept since this was asked last, if it has.
    pub(super) fn slept(&mut self) -> Option<u64> {
        let asleep = clock::asleep_ms();
        let slept = asleep.saturating_sub(self.asleep_ms);
        (slept >= SLEEP_MIN_MS).then(|| {
            self.asleep_ms = asleep;
            slept / 1000
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    #[test]
    fn nothing_is_to_be_read_while_the_clock_goes_on() {
        let mut awake = Awake::new().unwrap();
        awake.again();
        assert_eq!(awake.slept(), None);
        assert_eq!(poll(&mut [PollFd::new(awake.fd(), PollFlags::POLLIN)], PollTimeout::from(50_u8)), Ok(0));
    }
}
