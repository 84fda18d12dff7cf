//! What a joined lockspace does until it is told to leave: renew, and look at the other hosts.
//!
//! The thread on this duty makes the calls itself as long as there is one to wait for, and is relieved if that does not return
//! ([`crate::crew`]): a renewal changes threads as seldom as can be, and its calls have the priority of the thread.
//!
//! Where no thread is to be had, neither to relieve this one nor to make a call, it makes those of a renewal all the same: refused, they would lose a
//! lockspace whose disk is well. If such a call hangs, nothing here goes on before a call returns; then who comes back first goes on. What
//! the age of the lockspace demands the front knows by itself. A look at the other hosts is not worth that, and is refused.

use sanlock_blockio::drive::{Report as Driven, Spare, monotonic_now};
use sanlock_lease::code::ReturnCode;
use sanlock_lease::delta::{HostScan, Joined, RenewOutcome, ScanOutcome};
use sanlock_lease::hosts::HostNews;
use sanlock_lease::timing::MonoTime;
use sanlock_manager::Event;

use super::next::{Next, next};
use super::worker::{LsMachine, LsOutcome, Residents, Worker};
use crate::crew::{Duty, Turn};

/// See the module.
pub(super) struct Renewing {
    worker: Worker,
    residents: Residents,
    /// Whether another instance has our lease: nothing is written any more.
    lost: bool,
    /// The last good renewal that was made known.
    published: MonoTime,
    /// What ends the next sleep.
    wake: Option<MonoTime>,
    /// Whether the last look at the other hosts has failed in part, as the log says.
    blind: bool,
}

impl Duty for Renewing {
    fn turn(&mut self, _fresh: bool, may_leave: bool) -> Turn {
        self.worker.look();
        while self.worker.leave.is_none() {
            self.reports();
            if let Next::Wait(wake) = self.next() {
                // An operation that could not be started has ended at once.
                if self.worker.done.is_empty() {
                    self.wake = self.worker.driver.next_wake().into_iter().chain(wake).min();
                    let spare = match may_leave {
                        true if self.worker.is_quiet() => Spare::Alone,
                        true => Spare::LastResort,
                        false => Spare::Only(self.residents.renewal),
                    };
                    let errand = self.worker.driver.errand(spare);
                    return errand.map_or(Turn::Rest, Turn::Errand);
                }
            }
        }
        Turn::Over
    }

    fn rest(&mut self) {
        self.worker.sleep(self.wake);
    }

    fn over(mut self) {
        self.worker.leave(self.residents);
    }
}

impl Renewing {
    pub(super) fn new(worker: Worker, joined: &Joined, residents: Residents) -> Self {
        let (lost, published) = (false, joined.last_good);
        let mut renewing = Self { worker, residents, lost, published, wake: None, blind: false };
        renewing.worker.again(renewing.residents.scan);
        renewing
    }

    fn reports(&mut self) {
        for report in std::mem::take(&mut self.worker.done) {
            match report {
                Driven::Done { outcome: LsOutcome::Renew(outcome), .. } => {
                    self.lost |= matches!(outcome, RenewOutcome::Corrupt(_));
                    self.renewed(outcome);
                    self.worker.again(self.residents.scan);
                }
                Driven::Done { outcome: LsOutcome::Scan(outcome), .. } => self.scanned(&outcome),
                Driven::Done { .. } | Driven::Settled { .. } => {}
            }
        }
    }

    /// Starts what is due; what is to be waited for, if nothing is.
    fn next(&mut self) -> Next {
        let Residents { renewal, scan, .. } = self.residents;
        if let Some((event, bitmap)) = self.worker.outgoing.take() {
            if let Some(LsMachine::Renew(machine)) = self.worker.driver.machine_mut(renewal) {
                machine.set_outgoing(event, *bitmap);
            }
        }
        let Some(machine) = self.worker.renewal(renewal) else { return Next::Wait(None) };
        let (due, last_good) = (machine.due(), machine.last_good());
        // A late write moves the time without an attempt of its own.
        if self.published < last_good {
            self.publish(last_good, 0, 0);
            self.published = last_good;
        }
        let due = (!self.lost && !self.worker.driver.is_busy(renewal)).then_some(due);
        let look = self.worker.scan(scan).and_then(HostScan::due);
        let next = next(monotonic_now(), due, look);
        match next {
            Next::Renew => self.worker.again(renewal),
            Next::Look => self.worker.again(scan),
            Next::Wait(_) => {}
        }
        next
    }

    /// Makes a good renewal known: first to the machines of this daemon, then to the front.
    fn publish(&self, timestamp: MonoTime, read_ms: u64, write_ms: u64) {
        let dead_secs = self.worker.shared.io_timeout.host_dead_secs(self.worker.global.config.fire);
        if self.worker.shared.renewed(timestamp, monotonic_now(), dead_secs) {
            let event = Event::Renewed { ls: self.worker.ls, timestamp, read_ms, write_ms };
            self.worker.tell(event);
        }
    }

    /// Publishes the outcome of an attempt.
    fn renewed(&mut self, outcome: RenewOutcome) {
        match outcome {
            RenewOutcome::Renewed(renewed) => {
                if let Some(found) = renewed.foreign_io_timeout {
                    self.worker
                        .log
                        .error(format_args!("our lease carried io timeout {found}, replaced by ours"));
                }
                if renewed.write_ms >= self.worker.shared.io_timeout.millis() {
                    self.worker.log.error(format_args!("renewal write took {} ms", renewed.write_ms));
                }
                if self.worker.global.config.debug_renew != 0 {
                    let (read, write) = (renewed.read_ms, renewed.write_ms);
                    let at = renewed.last_good.secs();
                    self.worker.log.debug(format_args!("renewed {at} read {read} ms write {write} ms"));
                }
                self.publish(renewed.last_good, renewed.read_ms, renewed.write_ms);
                self.published = renewed.last_good;
            }
            RenewOutcome::Failed(failure) => {
                let (code, text) = (ReturnCode::from(&failure).0, failure.to_string());
                self.worker.tell(Event::RenewalFailed { ls: self.worker.ls, code, text });
            }
            RenewOutcome::Corrupt(corrupt) => {
                // Whoever has it may be taking over right now: nobody here waits for the front.
                self.worker.shared.set_gone();
                let (code, text) = (ReturnCode::from(&corrupt).0, corrupt.to_string());
                self.worker.tell(Event::Corrupt { ls: self.worker.ls, code, text });
            }
        }
    }

    /// Publishes the host table and logs who is new (command-line.md 11.2).
    fn scanned(&mut self, outcome: &ScanOutcome) {
        let Some(table) = self.worker.scan(self.residents.scan).map(HostScan::table) else { return };
        for news in &outcome.news {
            match news {
                HostNews::Instance { host, name, generation } => {
                    let timestamp =
                        table.status(*host, monotonic_now()).map_or(0, |status| status.seen.timestamp);
                    let name = String::from_utf8_lossy(name.as_bytes());
                    self.worker.log.warn(format_args!("host {} {generation} {timestamp} {name}", host.get()));
                }
                HostNews::Bad { host, count, error } => {
                    self.worker.log.error(format_args!(
                        "host {} has a bad record, seen {count} times: {error}",
                        host.get()
                    ));
                }
                HostNews::Good { host } => {
                    self.worker.log.error(format_args!("host {} has a good record again", host.get()));
                }
                HostNews::Notice { from, generation, event } => {
                    self.worker
                        .log
                        .debug(format_args!("host {} {generation} notifies: {event:?}", from.get()));
                    let (ls, from, generation, event) = (self.worker.ls, *from, *generation, *event);
                    self.worker.tell(Event::Noticed { ls, from, generation, event });
                }
            }
        }
        let blind = std::mem::replace(&mut self.blind, outcome.failed.is_some());
        match &outcome.failed {
            Some((host, failure)) if blind => {
                self.worker
                    .log
                    .debug(format_args!("the read of hosts from {} on failed: {failure}", host.get()));
            }
            // Every look reads again what could not be read.
            Some((host, failure)) => {
                self.worker.log.error(format_args!(
                    "the read of hosts from {} on failed: {failure}; those that cannot be read one by one look dead after a while",
                    host.get()
                ));
            }
            None if blind => self.worker.log.error(format_args!("all hosts can be read again")),
            None => {}
        }
        self.worker.shared.set_hosts(table.clone());
    }
}
