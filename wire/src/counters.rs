//! What the daemon counts: records of our own, which STATUS has only when
//! [`StatusFlags::COUNTERS`] asks for them.
//!
//! The original ignores flags that it does not know (socket-protocol.md 7) and answers with the plain listing; a client that does not
//! ask sees no difference. Whatever a reader does not find it leaves out.

use core::time::Duration;

use bitflags::bitflags;

use crate::code;
use crate::command::Command;
use crate::header::Header;
use crate::name::Name;
use crate::request::{Request, RequestBody};
use crate::state::{Attachment, StateRecord, StateText};

bitflags! {
    /// `cmd_flags` of STATUS. The original has none and ignores them (socket-protocol.md 7).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct StatusFlags: u32 {
        /// Ours: after the listing, the records of this module.
        const COUNTERS = 0x4000_0000;
    }
}

/// STATUS (7.5) of all records, with those of this module where the daemon has them.
#[must_use]
pub fn status_request() -> Request {
    let header = Header::request(Command::Status, StatusFlags::COUNTERS.bits(), 0, 0, 0);
    Request { header, body: RequestBody::Status }
}

/// A record of this module: `name` is that of a lockspace, or empty.
#[must_use]
pub fn record(kind: u32, name: Name, text: &StateText) -> StateRecord {
    let text = text.as_bytes().to_vec();
    StateRecord { kind, flags: 0, data32: 0, data64: 0, name, text, attachment: Attachment::None }
}

/// Record type of the counters. Far above the numbers that later versions of the original could give to theirs.
pub const COUNTERS_RECORD: u32 = 0x4000_0001;
/// Record type of what is known about one lockspace besides its own record; the record's name is the lockspace's.
pub const LOCKSPACE_COUNTERS_RECORD: u32 = 0x4000_0002;
/// In a record about a lockspace: how many host ids have a record on the disk that is damaged. The records of HOST_STATUS do not tell them
/// from those of hosts that left.
pub const DAMAGED_HOSTS: &str = "damaged_hosts";

/// Upper bounds of the latencies counted together, in microseconds. Longer ones are counted after the last.
pub const LATENCY_BOUNDS_US: [u64; 16] = [
    500,
    1_000,
    2_000,
    5_000,
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    30_000_000,
    120_000_000,
];

/// Commands whose results and latencies are counted, with the word for each.
pub const COUNTED: [(Command, &str); 3] =
    [(Command::Acquire, "acquire"), (Command::Release, "release"), (Command::Convert, "convert")];

/// Lengths of the daemon's queues, and how much is under way. Each is an item `depth_NAME`.
pub const DEPTHS: [&str; 10] = [
    "connections",
    "requests",
    "runnable",
    "messages",
    "unsent_bytes",
    "tool_jobs",
    "index_jobs",
    "record_saves",
    "helper_programs",
    "log_lines",
];

/// What a command came to, in classes that ask for different steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It did what it was asked to.
    Done,
    /// Another host has the lease, or was faster.
    Contended,
    /// Something on this host is in the way: another process has the lease, or the target is busy.
    Local,
    /// The version on disk is not the one demanded.
    Version,
    /// The storage did not answer, or what it has is no sound lease.
    Storage,
    /// The lockspace is not joined or not healthy, or the watchdog is not there.
    Lockspace,
    /// The request makes no sense, or its process is not registered.
    Refused,
    /// Anything else.
    Other,
}

impl Outcome {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Done,
        Self::Contended,
        Self::Local,
        Self::Version,
        Self::Storage,
        Self::Lockspace,
        Self::Refused,
        Self::Other,
    ];

    /// The class of a result (5).
    #[must_use]
    pub const fn of(result: i32) -> Self {
        match result {
            0.. => Self::Done,
            -247..=-243 | -213 => Self::Contended,
            code::EAGAIN | code::EBUSY | code::EEXIST | -114 | -115 => Self::Local,
            -240 | -212 | -251..=-250 => Self::Version,
            code::EIO | code::EACCES | code::ENODEV | code::EMSGSIZE => Self::Storage,
            -202 | -214..=-210 | -230..=-220 => Self::Storage,
            code::ENOSPC | -203 | -241 | -242 | -262..=-260 => Self::Lockspace,
            code::EINVAL | code::E2BIG | code::ERANGE | code::ESRCH | code::ENOENT | -1 => Self::Refused,
            _ => Self::Other,
        }
    }

    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Contended => "contended",
            Self::Local => "local",
            Self::Version => "version",
            Self::Storage => "storage",
            Self::Lockspace => "lockspace",
            Self::Refused => "refused",
            Self::Other => "other",
        }
    }
}

/// How many took how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Latencies {
    /// By [`LATENCY_BOUNDS_US`], each without those of the bounds below; the last: longer than all bounds.
    pub counts: [u64; LATENCY_BOUNDS_US.len() + 1],
    /// All together, in microseconds.
    pub sum_us: u64,
}

impl Latencies {
    /// Counts one.
    pub fn add(&mut self, latency: Duration) {
        let us = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        let at = LATENCY_BOUNDS_US.iter().position(|bound| us <= *bound).unwrap_or(LATENCY_BOUNDS_US.len());
        if let Some(count) = self.counts.get_mut(at) {
            *count = count.saturating_add(1);
        }
        self.sum_us = self.sum_us.saturating_add(us);
    }

    fn text(&self) -> String {
        let counts: Vec<String> = self.counts.iter().map(u64::to_string).collect();
        format!("{}:{}", counts.join(","), self.sum_us)
    }

    fn parse(text: &[u8]) -> Option<Self> {
        let (counts, sum) = core::str::from_utf8(text).ok()?.split_once(':')?;
        let mut found = Self { sum_us: sum.parse().ok()?, ..Self::default() };
        let mut words = counts.split(',');
        for count in &mut found.counts {
            *count = words.next()?.parse().ok()?;
        }
        words.next().is_none().then_some(found)
    }
}

/// Results and latencies of one command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CommandCounters {
    /// In the order of [`Outcome::ALL`].
    pub outcomes: [u64; Outcome::ALL.len()],
    /// Of those that did what they were asked to.
    pub done: Latencies,
    /// Of all others.
    pub failed: Latencies,
}

/// Results and latencies of all counted commands, in the order of [`COUNTED`]. Of fixed size: counting allocates nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// One for each command.
    pub commands: [CommandCounters; COUNTED.len()],
}

impl Counters {
    /// Counts a reply; of other commands nothing is counted.
    pub fn add(&mut self, command: Command, result: i32, latency: Duration) {
        let at = COUNTED.iter().position(|(counted, _)| *counted == command);
        let Some(counters) = at.and_then(|at| self.commands.get_mut(at)) else { return };
        let outcome = Outcome::of(result);
        for (known, count) in Outcome::ALL.iter().zip(&mut counters.outcomes) {
            *count = count.saturating_add(u64::from(*known == outcome));
        }
        if outcome == Outcome::Done { &mut counters.done } else { &mut counters.failed }.add(latency);
    }

    /// The items of the record.
    #[must_use]
    pub fn text(&self, mut text: StateText) -> StateText {
        for ((_, name), counters) in COUNTED.iter().zip(&self.commands) {
            for (outcome, count) in Outcome::ALL.iter().zip(counters.outcomes) {
                text = text.item(&format!("{name}_{}", outcome.word()), count);
            }
            text = text.item(&format!("{name}_done_us"), counters.done.text());
            text = text.item(&format!("{name}_failed_us"), counters.failed.text());
        }
        text
    }

    /// What the record says; `None` unless all of it is there.
    #[must_use]
    pub fn parse(record: &StateRecord) -> Option<Self> {
        let mut found = Self::default();
        for ((_, name), counters) in COUNTED.iter().zip(&mut found.commands) {
            for (outcome, count) in Outcome::ALL.iter().zip(&mut counters.outcomes) {
                *count = number(record, &format!("{name}_{}", outcome.word()))?;
            }
            counters.done = Latencies::parse(record.get(&format!("{name}_done_us"))?)?;
            counters.failed = Latencies::parse(record.get(&format!("{name}_failed_us"))?)?;
        }
        Some(found)
    }
}

/// The value of an item that is a number.
#[must_use]
pub fn number(record: &StateRecord, key: &str) -> Option<u64> {
    core::str::from_utf8(record.get(key)?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::MAX_STATE_TEXT;

    fn record(counters: &Counters) -> StateRecord {
        super::record(COUNTERS_RECORD, Name::EMPTY, &counters.text(StateText::new()))
    }

    #[test]
    fn the_request_is_a_status_of_all_with_the_flag() {
        let plain = Request::status(0);
        let request = status_request();
        assert_eq!(request.header, Header { cmd_flags: 0x4000_0000, ..plain.header });
        assert_eq!(request.body, plain.body);
    }

    #[test]
    fn what_is_counted_survives_its_record() {
        let mut counters = Counters::default();
        counters.add(Command::Acquire, 0, Duration::from_micros(500));
        counters.add(Command::Acquire, code::SANLK_ACQUIRE_IDLIVE, Duration::from_millis(3));
        counters.add(Command::Release, 2, Duration::from_secs(1000));
        counters.add(Command::Inquire, 0, Duration::from_secs(1));
        let [acquire, release, convert] = counters.commands;
        assert_eq!((acquire.outcomes[0], acquire.outcomes[1], acquire.done.counts[0]), (1, 1, 1));
        assert_eq!((acquire.failed.counts[3], acquire.failed.sum_us), (1, 3000));
        assert_eq!((release.outcomes[0], release.done.counts[16]), (1, 1));
        assert_eq!(convert, CommandCounters::default());
        assert_eq!(Counters::parse(&record(&counters)), Some(counters));
    }

    #[test]
    fn a_record_with_something_missing_or_strange_is_none() {
        let whole = record(&Counters::default());
        let text = String::from_utf8(whole.text.clone()).unwrap();
        for (from, to) in [("acquire_done=0", "acquire_done=x"), ("release_local=0 ", ""), (":0", ",0:0")] {
            assert!(text.contains(from));
            let broken = StateRecord { text: text.replacen(from, to, 1).into_bytes(), ..whole.clone() };
            assert_eq!(Counters::parse(&broken), None, "{from}");
        }
    }

    #[test]
    fn the_largest_record_fits() {
        let most = Latencies { counts: [u64::MAX; 17], sum_us: u64::MAX };
        let command = CommandCounters { outcomes: [u64::MAX; 8], done: most, failed: most };
        let mut text = Counters { commands: [command; 3] }.text(StateText::new());
        for depth in DEPTHS {
            text = text.item(&format!("depth_{depth}"), u64::MAX);
        }
        assert!(text.item("watchdog_fire", u64::MAX).as_bytes().len() <= MAX_STATE_TEXT);
    }

    #[test]
    fn every_outcome_has_results() {
        for (result, outcome) in [
            (0, Outcome::Done),
            (code::SANLK_ACQUIRE_IDLIVE, Outcome::Contended),
            (code::EEXIST, Outcome::Local),
            (-240, Outcome::Version),
            (-202, Outcome::Storage),
            (code::EIO, Outcome::Storage),
            (code::EACCES, Outcome::Storage),
            (code::ENODEV, Outcome::Storage),
            (code::EMSGSIZE, Outcome::Storage),
            (-223, Outcome::Storage),
            (code::ENOSPC, Outcome::Lockspace),
            (code::EINVAL, Outcome::Refused),
            (-299, Outcome::Other),
        ] {
            assert_eq!(Outcome::of(result), outcome, "{result}");
        }
    }
}
