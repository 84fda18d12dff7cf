//! A machine that stands still as a whole: its processes, its daemon and wdmd; its clock and its watchdog device, or not.
//!
//! # Fault model
//!
//! * Clock and device go on, for any time: a machine that hangs, is busy elsewhere, or is a virtual one whose hypervisor keeps a
//!   watchdog outside. The device fires while it stands still, and A4 holds. What was due happens when it goes on, in its order.
//! * Clock *and* device stand still too, which is what a hypervisor does that suspends a virtual machine with the watchdog it
//!   emulates. To everybody else the machine's clock is slow and its device late, so that has to fit into the margin with everything
//!   else ([`crate::bounds`]): `lag_ms` in any stretch of 8T + F.
//!
//! # What is not covered
//!
//! A suspension of more than that, of the clock (A3) or of the device (A4), or of both: whoever looks from outside sees a host that has been
//! silent for 8T + F and whose watchdog must have fired, and takes its leases. Then it goes on as if nothing had happened.
//! `tests/sabotage.rs` has the runs that end with two owners. Whoever uses leases in virtual machines must see to it that a machine is
//! reset, not resumed, if it was suspended for longer.

use crate::clock::{Micros, SECOND};
use crate::world::{Event, World};

/// What stands still with the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Neither its clock nor its watchdog device.
    Neither,
    /// Its watchdog device.
    Device,
    /// Both.
    Both,
}

impl World {
    /// The machine stands still for that long.
    pub(crate) fn stop_machine(&mut self, host: usize, long: Micros, with: Standing) {
        let until = self.now + long;
        let h = &self.hosts[host];
        if !h.up
            || h.is_reference()
            || h.stopped_until > self.now
            || until >= self.settings.stormy_secs * SECOND
        {
            return;
        }
        self.say(|w| format!("{:?} the machine stands still for {long} us, and {with:?}", w.hosts[host].id));
        let (clock, device) = (with == Standing::Both, with != Standing::Neither);
        let h = &mut self.hosts[host];
        h.stopped_until = until;
        if clock {
            h.clock.stands_still(self.now, long);
            self.checks.has_clock(h.id, h.clock);
        } else {
            // What follows is not the fault of anybody else.
            h.excused = until;
            h.watchdog.faulted = true;
        }
        if device {
            h.watchdog.device_stands_still(long);
        }
        match with {
            Standing::Both => self.checks.marks.machines_suspended += 1,
            Standing::Neither | Standing::Device => self.checks.marks.machines_stopped += 1,
        }
        let later = |at: Micros| if clock { at + long } else { at.max(until) };
        // What is on its way arrives later, and what is sent afterwards not before it.
        let now = self.now;
        self.hosts[host].watchdog.arrivals_later(now, later);
        if let Some(daemon) = self.daemon(host) {
            daemon.arrivals_later(now, later);
        }
        let ios = &self.ios;
        self.queue.postpone(|at, event| match event {
            Event::Complete { io } if ios.get(io).is_some_and(|io| io.host == host) => at.max(until),
            Event::Deadline { io } if ios.get(io).is_some_and(|io| io.host == host) => later(at),
            Event::DeviceFires { host: of, .. } if *of == host => at + if device { long } else { 0 },
            event if event.of_machine() == Some(host) => later(at),
            _ => at,
        });
    }

    /// A machine stands still for as long as it may with its clock, if it has not done so lately.
    pub(crate) fn suspend_for_a_moment(&mut self, host: usize) {
        let h = &self.hosts[host];
        let stretch = h.longest_io_timeout().host_dead_secs(h.fire) * SECOND * 21 / 20;
        let lately = h.stopped_until > 0 && self.now < h.stopped_until + stretch;
        if self.settings.lag_ms > 0 && !lately {
            let long = self.dice.between(1, self.settings.lag_ms) * 1000;
            self.stop_machine(host, long, Standing::Both);
        }
    }
}

impl Event {
    /// The machine on which it happens. The watchdog device and operations in flight go on without it.
    pub(crate) fn of_machine(&self) -> Option<usize> {
        match *self {
            Self::Wake { host, .. }
            | Self::FrontTick { host, .. }
            | Self::Letter { host, .. }
            | Self::Worker { host, .. }
            | Self::OpenFailed { host, .. }
            | Self::Resume { host, .. }
            | Self::Restart { host, .. }
            | Self::Turn { host, .. }
            | Self::Exit { host, .. }
            | Self::DescendantEnds { host, .. }
            | Self::Spawn { host, .. }
            | Self::Admin { host, .. }
            | Self::LooksAway { host, .. }
            | Self::WdStart { host, .. }
            | Self::WdThaw { host, .. }
            | Self::WdInput { host, .. }
            | Self::WdWake { host, .. }
            | Self::WdDevice { host, .. }
            | Self::WdTimeout { host, .. }
            | Self::WdLinger { host, .. } => Some(host),
            _ => None,
        }
    }
}
