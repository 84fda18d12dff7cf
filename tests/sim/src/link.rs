//! The daemon's link to wdmd, as in `daemon/src/watchdog.rs`: one connection for each lockspace that needs it.

use crate::clock::SECOND;
use crate::daemon::{Message as Letter, Source, Thread};
use crate::sabotage::Sabotage;
use crate::world::{Event, World};
use sanlock_lease::timing::WatchdogFire;
use sanlock_manager::{Action, Event as Told, LockspaceId};
use sanlock_wdmd::decide::{SourceId, test_interval};
use sanlock_wdmd::protocol::{Command, Message, Name};

/// How long an answer may take.
const REPLY_SECS: u64 = 15;
/// How long a connection without expiry is kept.
const LINGER_SECS: u64 = 30;

/// Renewal and expiry.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    renewal: u64,
    expire: u64,
}

/// What the thread is told.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "as in the daemon")]
pub enum Order {
    Check { ls: u64, fire: u32 },
    Arm { ls: u64, fire: u32, times: Times },
    Live { ls: u64, times: Times },
    Disarm { ls: u64 },
}

impl Order {
    /// Which lockspace it is about.
    pub(crate) fn lockspace(&self) -> u64 {
        match self {
            Self::Check { ls, .. } | Self::Arm { ls, .. } | Self::Live { ls, .. } | Self::Disarm { ls } => {
                *ls
            }
        }
    }

    /// What an action of the manager means to the thread, if it is for it.
    pub(crate) fn of(action: &Action) -> Option<Self> {
        let seconds = |fire: &WatchdogFire| u32::try_from(fire.secs()).unwrap_or(u32::MAX);
        Some(match action {
            Action::WatchdogCheck { ls, fire } => Self::Check { ls: ls.0, fire: seconds(fire) },
            Action::WatchdogArm { ls, fire, renewal, expire, .. } => {
                let times = Times { renewal: *renewal, expire: *expire };
                Self::Arm { ls: ls.0, fire: seconds(fire), times }
            }
            Action::WatchdogLive { ls, renewal, expire } => {
                Self::Live { ls: ls.0, times: Times { renewal: *renewal, expire: *expire } }
            }
            Action::WatchdogDisarm { ls } => Self::Disarm { ls: ls.0 },
            _ => return None,
        })
    }
}

/// The connection of a lockspace.
#[derive(Clone, Copy, Debug)]
pub enum Link {
    /// Being armed.
    Arming {
        /// The newest renewal meanwhile.
        newer: Option<Times>,
        /// It is not wanted any more.
        cancelled: bool,
    },
    /// wdmd has an expiry.
    Armed(SourceId),
    /// It has none.
    Idle(SourceId),
}

/// A conversation with wdmd.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    ls: u64,
    fire: u32,
    /// What to arm with; `None`: it is only asked.
    times: Option<Times>,
    /// On a connection that was kept: if it fails, a new one is tried.
    kept: bool,
    /// The answer to OPEN_WATCHDOG.
    in_use: Option<u32>,
    confirming: bool,
    /// Tells timeouts of one question from those of another.
    question: u32,
}

impl World {
    fn later(&self, times: Times) -> Times {
        let late = if self.sabotaged(Sabotage::ExpiryTooLate) { 30 } else { 0 };
        Times { expire: times.expire + late, ..times }
    }

    pub(crate) fn link_order(&mut self, host: usize, order: Order) {
        match order {
            Order::Check { ls, fire } => {
                self.call(host, ls, fire, None, None);
            }
            Order::Arm { ls, fire, times } => {
                let times = self.later(times);
                let Some(daemon) = self.daemon(host) else { return };
                let before = daemon.links.insert(ls, Link::Arming { newer: None, cancelled: false });
                let kept = if let Some(Link::Idle(conn)) = before { Some(conn) } else { None };
                self.call(host, ls, fire, Some(times), kept);
            }
            Order::Live { ls, times } => {
                let times = self.later(times);
                self.link_live(host, ls, times);
            }
            Order::Disarm { ls } => self.link_disarm(host, ls),
        }
    }

    /// Begins a conversation, on a new connection unless one was kept.
    fn call(&mut self, host: usize, ls: u64, fire: u32, times: Option<Times>, kept: Option<SourceId>) {
        let conn = kept.or_else(|| self.wd_connect(host, ls));
        let Some(conn) = conn else {
            return self.called(host, ls, times.is_some(), Err("no wdmd".to_owned()));
        };
        let call =
            Call { ls, fire, times, kept: kept.is_some(), in_use: None, confirming: false, question: 0 };
        let Some(daemon) = self.daemon(host) else { return };
        daemon.calls.insert(conn, call);
        let open = Message { fire_timeout: fire, ..Message::new(Command::OpenWatchdog) };
        let sent = self.wd_send(host, conn, open) && self.wd_send(host, conn, Message::new(Command::Status));
        self.ask_wdmd(host, conn, sent);
    }

    /// Waits for an answer, if the question could be asked.
    fn ask_wdmd(&mut self, host: usize, conn: SourceId, sent: bool) {
        if !sent {
            return self.call_failed(host, conn, "wdmd is gone");
        }
        let Some(daemon) = self.daemon(host) else { return };
        let life = daemon.life;
        let Some(call) = daemon.calls.get_mut(&conn) else { return };
        call.question += 1;
        let question = call.question;
        self.at(self.now + REPLY_SECS * SECOND, Event::WdTimeout { host, life, conn, question });
    }

    pub(crate) fn wd_timeout(&mut self, host: usize, conn: SourceId, question: u32) {
        if self.daemon(host).and_then(|d| d.calls.get(&conn)).is_some_and(|c| c.question == question) {
            self.call_failed(host, conn, "no answer");
        }
    }

    /// wdmd answers.
    pub(crate) fn link_reply(&mut self, host: usize, conn: SourceId, message: Message) {
        let Some(call) = self.daemon(host).and_then(|d| d.calls.get_mut(&conn)) else { return };
        if message.cmd == Command::OpenWatchdog.number() {
            call.in_use = Some(message.fire_timeout);
            return;
        }
        let call = *call;
        if call.confirming {
            if message.fire_timeout != call.fire {
                return self.call_failed(host, conn, "another fire timeout");
            }
            if let Some(daemon) = self.daemon(host) {
                daemon.calls.remove(&conn);
            }
            return self.called(host, call.ls, true, Ok(conn));
        }
        if call.in_use != Some(call.fire) {
            return self.call_failed(host, conn, "no device");
        }
        let Some(times) = call.times else {
            if let Some(daemon) = self.daemon(host) {
                daemon.calls.remove(&conn);
            }
            self.wd_close(host, conn);
            let result = Ok(message.test_interval.max(test_interval(call.fire)));
            let told = Told::WatchdogChecked { ls: LockspaceId(call.ls), result };
            return self.report(host, Thread::Watchdog, told);
        };
        if let Some(call) = self.daemon(host).and_then(|d| d.calls.get_mut(&conn)) {
            call.confirming = true;
        }
        let name = Name::new(b"sanlock").unwrap_or(Name::EMPTY);
        let sent = self.wd_send(host, conn, Message { name, ..Message::new(Command::Register) })
            && self.wd_send(host, conn, Message::new(Command::RefcountSet))
            && (self.sabotaged(Sabotage::ArmsNothing) || self.wd_send(host, conn, live(times)))
            && self.wd_send(host, conn, Message::new(Command::Status));
        self.ask_wdmd(host, conn, sent);
    }

    fn call_failed(&mut self, host: usize, conn: SourceId, why: &str) {
        let Some(call) = self.daemon(host).and_then(|d| d.calls.remove(&conn)) else { return };
        if call.times.is_none() {
            self.wd_close(host, conn);
        } else {
            // Kept, so that wdmd can read that nothing is expected of it.
            self.withdraw(host, conn);
        }
        if call.kept {
            return self.call(host, call.ls, call.fire, call.times, None);
        }
        self.called(host, call.ls, call.times.is_some(), Err(why.to_owned()));
    }

    fn withdraw(&mut self, host: usize, conn: SourceId) -> bool {
        self.wd_send(host, conn, Message::new(Command::TestLive))
            && self.wd_send(host, conn, Message::new(Command::RefcountClear))
    }

    /// A conversation has come to an end.
    fn called(&mut self, host: usize, ls: u64, arming: bool, result: Result<SourceId, String>) {
        let id = LockspaceId(ls);
        if !arming {
            let text = result.err().unwrap_or_default();
            let told = Told::WatchdogChecked { ls: id, result: Err(text) };
            return self.report(host, Thread::Watchdog, told);
        }
        let Some(Link::Arming { newer, cancelled }) = self.daemon(host).and_then(|d| d.links.remove(&ls))
        else {
            return;
        };
        let result = match result {
            Ok(conn) => {
                if let Some(daemon) = self.daemon(host) {
                    daemon.links.insert(ls, Link::Armed(conn));
                }
                self.checks.marks.armed += 1;
                if cancelled {
                    self.link_disarm(host, ls);
                } else if let Some(times) = newer {
                    self.link_live(host, ls, times);
                }
                Ok(())
            }
            Err(text) => Err(text),
        };
        self.report(host, Thread::Watchdog, Told::WatchdogArmed { ls: id, result });
    }

    fn link_live(&mut self, host: usize, ls: u64, times: Times) {
        if self.sabotaged(Sabotage::DisarmsEarly) {
            return self.link_disarm(host, ls);
        }
        match self.daemon(host).and_then(|d| d.links.get_mut(&ls)) {
            Some(Link::Arming { newer, .. }) => *newer = Some(times),
            Some(Link::Armed(conn)) => {
                let conn = *conn;
                if !self.wd_send(host, conn, live(times)) {
                    self.link_lost(host, ls);
                }
            }
            Some(Link::Idle(_)) | None => {}
        }
    }

    fn link_disarm(&mut self, host: usize, ls: u64) {
        if self.sabotaged(Sabotage::NeverDisarms) {
            return;
        }
        let Some(daemon) = self.daemon(host) else { return };
        let life = daemon.life;
        match daemon.links.get_mut(&ls) {
            Some(Link::Arming { cancelled, .. }) => *cancelled = true,
            Some(Link::Armed(conn)) => {
                let conn = *conn;
                daemon.links.insert(ls, Link::Idle(conn));
                if self.withdraw(host, conn) {
                    self.at(self.now + LINGER_SECS * SECOND, Event::WdLinger { host, life, ls, conn });
                } else if let Some(daemon) = self.daemon(host) {
                    daemon.links.remove(&ls);
                }
            }
            Some(Link::Idle(_)) | None => {}
        }
    }

    /// A connection without expiry was kept long enough. (It may have been used meanwhile, which makes this a bit early.)
    pub(crate) fn link_linger(&mut self, host: usize, ls: u64, conn: SourceId) {
        let Some(daemon) = self.daemon(host) else { return };
        if matches!(daemon.links.get(&ls), Some(Link::Idle(c)) if *c == conn) {
            daemon.links.remove(&ls);
            self.wd_close(host, conn);
        }
    }

    /// wdmd has closed a connection.
    pub(crate) fn link_closed(&mut self, host: usize, conn: SourceId) {
        let Some(daemon) = self.daemon(host) else { return };
        if daemon.calls.contains_key(&conn) {
            return self.call_failed(host, conn, "wdmd is gone");
        }
        let found = daemon.links.iter().find_map(|(ls, link)| match link {
            Link::Armed(c) if *c == conn => Some((*ls, true)),
            Link::Idle(c) if *c == conn => Some((*ls, false)),
            _ => None,
        });
        match found {
            Some((ls, true)) => self.link_lost(host, ls),
            Some((ls, false)) => {
                daemon.links.remove(&ls);
            }
            None => {}
        }
    }

    fn link_lost(&mut self, host: usize, ls: u64) {
        if let Some(daemon) = self.daemon(host) {
            daemon.links.remove(&ls);
        }
        let told = Told::WatchdogLost { ls: LockspaceId(ls), text: "gone".to_owned() };
        self.send(host, Source::Thread(Thread::Watchdog), Thread::Front, Letter::told(told));
    }
}

fn live(times: Times) -> Message {
    Message { renewal_time: times.renewal, expire_time: times.expire, ..Message::new(Command::TestLive) }
}
