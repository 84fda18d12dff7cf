//! The watchdog link: one connection to wdmd for each lockspace that needs it (wdmd.md 11; docs/decisions/0008).
//!
//! One thread owns the connections, moves the expiries and watches for their end. Whatever has to wait for an answer of wdmd,
//! asking and arming, runs on a short-lived thread ([`asker`]), so that a busy wdmd delays nobody's renewals.
//!
//! A connection is kept for a while after its expiry was taken back: the next acquire then finds the device open. It is closed
//! after [`LINGER_SECS`], and wdmd may disarm the device; an idle host then has nothing to fear from the end of wdmd either.
//!
//! Leases age while the machine sleeps; the clock of wdmd does not go on then (decision 23). Every expiry is converted as it is sent, and
//! sent again after the machine has slept: sooner by as much.
//!
//! **What cannot be sent is no loss.** A connection that is dropped with an expiry has this host reset, and wdmd is well where the kernel has no
//! memory for a message. So the newest expiry is tried again while the connection stands, until the one that wdmd has is so near that the
//! users have to be stopped; and what is taken back is tried again for as long as this process lives.

mod arming;
mod asker;
mod withdrawn;

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, poll};
use sanlock_blockio::drive::monotonic_now;
use sanlock_lease::timing::{MonoTime, WatchdogFire};
use sanlock_manager::{Event, LockspaceId};
use sanlock_sys::{clock, thread};
use sanlock_wdmd::client::{ClientError, Connection, REPLY_WITHIN, SEND_WITHIN};
use sanlock_wdmd::decide::test_interval;

use self::arming::{Unarmed, Wish, arm, ask};
use self::asker::Asker;
use self::withdrawn::{Withdrawals, Withdrawn};
use crate::log::Log;
use crate::mailbox::{self, Mailbox, Sender};
use crate::nap;

/// Seconds a connection without expiry is kept.
pub(crate) const LINGER_SECS: u64 = 30;
/// Milliseconds after which what could not be sent is tried again.
const RETRY_MS: u64 = 250;
/// Stack of the threads.
const STACK: usize = 96 * 1024;

/// The expiry that a lockspace gives to wdmd, in seconds of the clock of leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Times {
    pub(crate) renewal: u64,
    pub(crate) expire: u64,
}

impl Times {
    /// The same moments on the clock of wdmd, which is this much behind.
    fn behind_by(self, asleep_ms: u64) -> Self {
        let behind = |seconds: u64| seconds.saturating_mul(1000).saturating_sub(asleep_ms) / 1000;
        // 0 would mean that there is no expiry.
        Self { renewal: behind(self.renewal), expire: behind(self.expire).max(1) }
    }
}

/// What the thread is told.
#[derive(Debug)]
pub(crate) enum Order {
    /// Is there a watchdog?
    Check { ls: LockspaceId, fire: WatchdogFire },
    /// Stand behind this lockspace.
    Arm { ls: LockspaceId, name: String, fire: WatchdogFire, times: Times },
    /// It was renewed.
    Live { ls: LockspaceId, times: Times },
    /// This machine has slept.
    Slept,
    /// Nothing depends on it any more.
    Disarm { ls: LockspaceId },
    /// A short-lived thread has armed a connection, or not.
    Armed { ls: LockspaceId, result: Result<Connection, Unarmed> },
    /// Everything told before has been carried out.
    Finish(mpsc::SyncSender<()>),
}

/// The front's side.
#[derive(Debug)]
pub(crate) struct Watchdog {
    orders: Sender<Order>,
    log: Log,
    /// Whether something that wdmd has could not be taken back yet.
    owed: Arc<AtomicBool>,
}

impl Watchdog {
    /// Starts the threads, which call `prepare` first. They connect to nobody before it is told to.
    ///
    /// # Errors
    /// No thread or descriptor is to be had.
    pub(crate) fn start(
        socket: PathBuf,
        log: Log,
        prepare: impl FnOnce() + Clone + Send + 'static,
        report: impl Fn(Event) + Send + Clone + 'static,
    ) -> io::Result<Self> {
        let asker = Asker::start(prepare.clone())?;
        Self::start_with(socket, log, clock::asleep_ms, asker, prepare, report)
    }

    /// The same, with something that tells how long the machine has slept, milliseconds, and whoever asks wdmd where that has to be waited for.
    fn start_with(
        socket: PathBuf,
        log: Log,
        asleep_ms: fn() -> u64,
        asker: Asker,
        prepare: impl FnOnce() + Send + 'static,
        report: impl Fn(Event) + Send + Clone + 'static,
    ) -> io::Result<Self> {
        let (orders, inbox) = mailbox::mailbox()?;
        let own = orders.clone();
        let (owed, for_front) = (Arc::new(AtomicBool::new(false)), log.clone());
        let owes = Arc::clone(&owed);
        thread::spawn("sanlock-wd", STACK, move || {
            prepare();
            let mut thread = Thread {
                socket,
                log,
                asleep_ms,
                orders: own,
                inbox,
                asker,
                report,
                links: HashMap::new(),
                withdrawals: Withdrawals::default(),
                owes,
                finishing: None,
            };
            loop {
                thread.turn();
            }
        })?;
        Ok(Self { orders, log: for_front, owed })
    }

    /// Sends an order.
    pub(crate) fn order(&self, order: Order) {
        self.orders.send(order);
    }

    /// Waits until every order has been carried out, but no longer than this; for what wdmd could not be told yet for three times as long more, for the end
    /// of this process with it is the end of this host.
    pub(crate) fn finish(&self, limit: Duration) {
        let (done, wait) = mpsc::sync_channel(1);
        self.order(Order::Finish(done));
        let owed = || self.owed.load(Ordering::SeqCst);
        let mut waited = wait.recv_timeout(limit);
        for _ in 0..3 {
            if waited.is_ok() || !owed() {
                return;
            }
            waited = wait.recv_timeout(limit);
        }
        if waited.is_err() && owed() {
            self.log.error(format_args!(
                "the daemon ends, and wdmd could not be told that nothing depends on it any more: this host is going to be reset"
            ));
        }
    }
}

/// The connection of a lockspace.
enum Link {
    /// A short-lived thread works on it.
    Arming {
        /// Its device is to fire after this time, seconds.
        fire: u64,
        /// What wdmd is to have in the end.
        times: Times,
        /// The expiry it is given first, on the clock of leases.
        told: u64,
        /// It has to be told again when the connection is armed.
        again: bool,
        /// It is not wanted any more; looked at before the expiry is given.
        cancelled: Arc<AtomicBool>,
    },
    /// wdmd has an expiry.
    Armed {
        connection: Connection,
        /// What it is to have.
        times: Times,
        /// The expiry it has, a second of the clock of leases.
        told: u64,
        /// The former could not be sent yet.
        unsent: Option<Unsent>,
        /// Its device is to fire after this time, seconds.
        fire: u64,
        /// It has said so when it was asked last, behind the last expiry.
        protects: bool,
    },
    /// It has none.
    Idle {
        connection: Connection,
        /// When it may be closed.
        until: MonoTime,
    },
}

/// An expiry that could not be sent.
#[derive(Clone, Copy)]
struct Unsent {
    since: MonoTime,
    /// When it is tried again.
    again: MonoTime,
}

struct Thread<R> {
    socket: PathBuf,
    log: Log,
    asleep_ms: fn() -> u64,
    orders: Sender<Order>,
    inbox: Mailbox<Order>,
    asker: Asker,
    report: R,
    links: HashMap<LockspaceId, Link>,
    /// Those on which nothing is expected any more.
    withdrawals: Withdrawals,
    /// Whether one of them is owed something, for whoever ends this process.
    owes: Arc<AtomicBool>,
    /// Whom to tell when nothing is left with wdmd.
    finishing: Option<mpsc::SyncSender<()>>,
}

impl<R: Fn(Event) + Send + Clone + 'static> Thread<R> {
    fn turn(&mut self) {
        let readable = self.wait();
        for order in self.inbox.take() {
            self.carry_out(order);
        }
        for ls in readable {
            self.hear(ls);
        }
        self.try_again();
        let now = monotonic_now();
        self.links.retain(|_, link| !matches!(link, Link::Idle { until, .. } if *until <= now));
        self.withdrawals.close(now);
        self.owes.store(self.withdrawals.owe(), Ordering::SeqCst);
        self.finish();
    }

    /// Sends what could not be sent before.
    fn try_again(&mut self) {
        let now = monotonic_now();
        let late = self.links.iter().filter_map(|(ls, link)| match link {
            Link::Armed { unsent: Some(unsent), .. } if unsent.again <= now => Some(*ls),
            _ => None,
        });
        for ls in late.collect::<Vec<_>>() {
            self.tell(ls);
        }
        self.withdrawals.try_again(now, &self.log);
    }

    /// Ends the waiting for the end, once wdmd has read on every connection that nothing is expected of it any more. Whoever
    /// waits sets the limit: this thread may wait for a wdmd that is busy.
    fn finish(&mut self) {
        let arming = self.links.values().any(|link| matches!(link, Link::Arming { .. }));
        if self.finishing.is_none() || arming || !self.withdrawals.is_empty() {
            return;
        }
        for link in self.links.values_mut() {
            if let Link::Idle { connection, .. } = link {
                let _ = connection.status(REPLY_WITHIN);
            }
        }
        if let Some(done) = self.finishing.take() {
            let _ = done.send(());
        }
    }

    /// Sleeps; the lockspaces whose connection has something to say: it has ended, or answers what it was asked.
    fn wait(&self) -> Vec<LockspaceId> {
        let watched: Vec<(LockspaceId, &Connection)> = self
            .links
            .iter()
            .filter_map(|(ls, link)| match link {
                Link::Armed { connection, .. } | Link::Idle { connection, .. } => Some((*ls, connection)),
                Link::Arming { .. } => None,
            })
            .collect();
        let mut fds = vec![PollFd::new(self.inbox.fd(), PollFlags::POLLIN)];
        fds.extend(watched.iter().map(|(_, c)| PollFd::new(c.as_fd(), PollFlags::POLLIN)));
        let due = self.links.values().filter_map(|link| match link {
            Link::Idle { until, .. } => Some(*until),
            Link::Armed { unsent, .. } => unsent.map(|unsent| unsent.again),
            Link::Arming { .. } => None,
        });
        let wake = due.chain(self.withdrawals.due()).min();
        if poll(&mut fds, nap::until(wake)).is_err() {
            return Vec::new();
        }
        let readable = fds.iter().skip(1).zip(&watched).filter(|(fd, _)| fd.any() == Some(true));
        readable.map(|(_, (ls, _))| *ls).collect()
    }

    fn carry_out(&mut self, order: Order) {
        match order {
            Order::Check { ls, fire } => self.check(ls, fire),
            Order::Arm { ls, name, fire, times } => self.arm(ls, name, fire, times),
            Order::Live { ls, times } => self.live(ls, times),
            Order::Slept => self.slept(),
            Order::Disarm { ls } => self.disarm(ls),
            Order::Armed { ls, result } => self.armed(ls, result),
            Order::Finish(done) => self.finishing = Some(done),
        }
    }

    fn check(&self, ls: LockspaceId, fire: WatchdogFire) {
        let (socket, report) = (self.socket.clone(), self.report.clone());
        let failed = self.report.clone();
        let asking = move || {
            let result = ask(&socket, fire).map_err(|error| error.to_string());
            report(Event::WatchdogChecked { ls, result });
        };
        self.asker.ask(asking, move |error| {
            failed(Event::WatchdogChecked {
                ls,
                result: Err(format!("no thread to ask wdmd with: {error}")),
            });
        });
    }

    fn arm(&mut self, ls: LockspaceId, name: String, fire: WatchdogFire, times: Times) {
        let cancelled = Arc::new(AtomicBool::new(false));
        let arming = Link::Arming {
            fire: fire.secs(),
            times,
            told: times.expire,
            again: false,
            cancelled: Arc::clone(&cancelled),
        };
        let kept = match self.links.insert(ls, arming) {
            Some(Link::Idle { connection, .. }) => Some(connection),
            _ => None,
        };
        let (socket, orders, asleep_ms) = (self.socket.clone(), self.orders.clone(), self.asleep_ms);
        let failed = orders.clone();
        // Where there is no thread it is not dropped, for wdmd may still have to read what it was told by it.
        let kept = Arc::new(Mutex::new(kept));
        let spare = Arc::clone(&kept);
        let take =
            |kept: &Mutex<Option<Connection>>| kept.lock().unwrap_or_else(PoisonError::into_inner).take();
        let arming = move || {
            let result = {
                let kept = take(&kept);
                let wish = Wish { name, fire, times, asleep_ms, cancelled, within: REPLY_WITHIN };
                arm(&socket, kept, &wish)
            };
            orders.send(Order::Armed { ls, result });
        };
        self.asker.ask(arming, move |error| {
            let text = format!("no thread to arm it with: {error}");
            let withdrawn = take(&spare).into_iter().map(Withdrawn::told).collect();
            failed.send(Order::Armed { ls, result: Err(Unarmed { text, withdrawn }) });
        });
    }

    fn armed(&mut self, ls: LockspaceId, result: Result<Connection, Unarmed>) {
        let (fire, times, told, again, cancelled) = match self.links.remove(&ls) {
            Some(Link::Arming { fire, times, told, again, cancelled }) => {
                (fire, times, told, again, cancelled)
            }
            // Nobody waits for it. An expiry that nobody moves must not stay, and what there is instead goes on.
            other => {
                self.links.extend(other.map(|link| (ls, link)));
                let withdrawn = match result {
                    Ok(connection) => vec![Withdrawn::take_back(connection, Duration::ZERO).0],
                    Err(Unarmed { withdrawn, .. }) => withdrawn,
                };
                return withdrawn.into_iter().for_each(|withdrawn| self.keep(withdrawn));
            }
        };
        match result {
            Ok(connection) => {
                let armed = Link::Armed { connection, times, told, unsent: None, fire, protects: true };
                self.links.insert(ls, armed);
                // First: what happens to the link from now on is news about an armed one.
                (self.report)(Event::WatchdogArmed { ls, result: Ok(()) });
                if cancelled.load(Ordering::SeqCst) {
                    self.disarm(ls);
                } else if again {
                    self.live(ls, times);
                }
            }
            Err(Unarmed { text, withdrawn }) => {
                withdrawn.into_iter().for_each(|withdrawn| self.keep(withdrawn));
                (self.report)(Event::WatchdogArmed { ls, result: Err(text) });
            }
        }
    }

    fn keep(&mut self, withdrawn: Withdrawn) {
        self.withdrawals.keep(withdrawn, monotonic_now());
    }

    /// What wdmd has been told is later by now than it was, on the clock of wdmd.
    fn slept(&mut self) {
        let told = self.links.iter().filter_map(|(ls, link)| match link {
            Link::Arming { times, .. } | Link::Armed { times, .. } => Some((*ls, *times)),
            Link::Idle { .. } => None,
        });
        for (ls, times) in told.collect::<Vec<_>>() {
            self.live(ls, times);
        }
    }

    fn live(&mut self, ls: LockspaceId, new: Times) {
        match self.links.get_mut(&ls) {
            Some(Link::Arming { times, again, .. }) => (*times, *again) = (new, true),
            Some(Link::Armed { times, .. }) => {
                *times = new;
                self.tell(ls);
            }
            Some(Link::Idle { .. }) => {}
            // Whoever believes that it is armed is to hear at last that it is not.
            None => self.lost(ls, "there is no connection"),
        }
    }

    /// Hands the newest expiry of an armed one to wdmd.
    fn tell(&mut self, ls: LockspaceId) {
        let Some(Link::Armed { connection, times, told, unsent, fire, .. }) = self.links.get_mut(&ls) else {
            return;
        };
        let there = times.behind_by((self.asleep_ms)());
        let now = monotonic_now();
        match connection.try_test_live(there.renewal, there.expire) {
            Ok(()) => {
                *told = times.expire;
                if let Some(unsent) = unsent.take() {
                    let late = now.millis_since(unsent.since);
                    self.log
                        .warn(format_args!("s{} wdmd_test_live {} sent {late} ms late", ls.0, there.renewal));
                }
                self.ask(ls);
            }
            Err(error @ ClientError::Unsent { .. }) => {
                let since = unsent.map_or(now, |unsent| unsent.since);
                let interval = u64::from(test_interval(u32::try_from(*fire).unwrap_or(u32::MAX)));
                // The users need what is left from then on to be stopped in. For as long as a message may wait it is tried in any case: with a short io
                // timeout that moment is past when a renewal is due.
                let until = MonoTime::from_secs(told.saturating_sub(2 * interval));
                let is_over = now >= until && now.millis_since(since) >= SEND_WITHIN.as_secs() * 1000;
                if is_over {
                    let late = now.millis_since(since) / 1000;
                    let text = format!("it could not be told of a renewal for {late} s: {error}");
                    self.log.error(format_args!("s{} wdmd_test_live {} given up", ls.0, there.renewal));
                    return self.lost(ls, &text);
                }
                if unsent.replace(Unsent { since, again: now.plus_millis(RETRY_MS) }).is_none() {
                    self.log.warn(format_args!(
                        "s{} wdmd_test_live {} is tried again until it is sent: {error}",
                        ls.0, there.renewal
                    ));
                }
            }
            Err(error) => {
                self.log.error(format_args!("s{} wdmd_test_live {} failed: {error}", ls.0, there.renewal));
                self.lost(ls, &error.to_string());
            }
        }
    }

    /// Asks whether the device works still. Nobody waits for the answer, and what could not be asked is asked behind the next expiry.
    fn ask(&mut self, ls: LockspaceId) {
        let Some(Link::Armed { connection, .. }) = self.links.get_mut(&ls) else { return };
        match connection.ask_status() {
            Ok(()) => {}
            Err(error @ ClientError::Unsent { .. }) => {
                self.log.warn(format_args!("s{} wdmd is not asked whether its device works: {error}", ls.0));
            }
            Err(error) => {
                self.log
                    .error(format_args!("s{} wdmd cannot be asked whether its device works: {error}", ls.0));
                self.lost(ls, &error.to_string());
            }
        }
    }

    fn disarm(&mut self, ls: LockspaceId) {
        match self.links.remove(&ls) {
            Some(arming @ Link::Arming { .. }) => {
                if let Link::Arming { cancelled, .. } = &arming {
                    cancelled.store(true, Ordering::SeqCst);
                }
                self.links.insert(ls, arming);
            }
            Some(Link::Armed { connection, .. }) => {
                let (withdrawn, told) = Withdrawn::take_back(connection, Duration::ZERO);
                match told {
                    Ok(()) => {
                        self.log.debug(format_args!("s{} wdmd_test_live 0 0 to disable", ls.0));
                        let (connection, until) =
                            (withdrawn.into_connection(), monotonic_now().plus_secs(LINGER_SECS));
                        self.links.insert(ls, Link::Idle { connection, until });
                    }
                    Err(error) => {
                        let again = if withdrawn.is_owed() { ", which is tried again" } else { "" };
                        self.log.error(format_args!(
                            "s{} the watchdog cannot be told that nothing depends on it any more{again}: {error}",
                            ls.0
                        ));
                        self.keep(withdrawn);
                    }
                }
            }
            Some(idle) => {
                self.links.insert(ls, idle);
            }
            None => {}
        }
    }

    /// The connection answers what it was asked, or has ended.
    fn hear(&mut self, ls: LockspaceId) {
        let Some(Link::Armed { connection, .. } | Link::Idle { connection, .. }) = self.links.get_mut(&ls)
        else {
            return;
        };
        if !connection.is_asked() {
            return self.ended(ls);
        }
        let status = match connection.answered() {
            Ok(Some(status)) => status,
            Ok(None) => return,
            Err(error) => {
                self.log.error(format_args!("s{} wdmd does not say whether its device works: {error}", ls.0));
                return self.ended(ls);
            }
        };
        if let Some(Link::Armed { fire, protects, .. }) = self.links.get_mut(&ls) {
            let now = u64::from(status.fire_timeout) == *fire;
            if std::mem::replace(protects, now) != now {
                (self.report)(Event::WatchdogStatus { ls, protects: now });
            }
        }
    }

    /// The connection ended, or has something to say that nobody asked for.
    fn ended(&mut self, ls: LockspaceId) {
        match self.links.get(&ls) {
            Some(Link::Armed { .. }) => self.lost(ls, "it closed the connection"),
            Some(Link::Idle { .. }) => {
                self.log.warn(format_args!("s{} wdmd closed an idle connection", ls.0));
                self.links.remove(&ls);
            }
            Some(Link::Arming { .. }) | None => {}
        }
    }

    fn lost(&mut self, ls: LockspaceId, text: &str) {
        self.links.remove(&ls);
        (self.report)(Event::WatchdogLost { ls, text: text.to_owned() });
    }
}

#[cfg(test)]
mod tests;
