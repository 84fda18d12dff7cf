//! Everything seen from outside, with the time of the host that watches.

use std::fmt;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// One of the guests, counted from 0. Its host id is one more.
pub(crate) type GuestNo = usize;

/// What was seen.
#[derive(Clone, Debug)]
pub(crate) enum What {
    /// A line on a guest's console.
    Line(GuestNo, String),
    /// An event of a guest's emulator, with its reason or action.
    Qmp(GuestNo, String, String),
    /// A new timestamp in a host's delta lease; `space` counts the lease disks.
    Renewal { space: usize, host: GuestNo, timestamp: u64 },
    /// A change of the resource's leader record.
    Leader { owner: u64, generation: u64, lver: u64, timestamp: u64 },
    /// A holder's stamp on the disk that is never cut.
    Stamp(GuestNo, u64),
    /// A holder's stamp on the lease disk.
    LeaseDiskStamp(GuestNo, u64),
    /// What the scenario did.
    Did(String),
    /// The fault begins here.
    Fault,
    /// The disks are not looked at any more, for this reason: who writes from here on is not seen.
    Blind(String),
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(guest, text) => write!(f, "host {}  {text}", guest + 1),
            Self::Qmp(guest, name, detail) => write!(f, "host {}  EVENT {name} {detail}", guest + 1),
            Self::Renewal { space, host, timestamp } => {
                write!(f, "disk    lease disk {space}: host {} renewed, timestamp {timestamp}", host + 1)
            }
            Self::Leader { owner, generation, lver, timestamp } => {
                write!(f, "disk    leader: owner {owner}/{generation} lver {lver} timestamp {timestamp}")
            }
            Self::Stamp(host, counter) => write!(f, "disk    stamp {counter} of host {}", host + 1),
            Self::LeaseDiskStamp(host, counter) => {
                write!(f, "disk    stamp {counter} of host {} on the lease disk", host + 1)
            }
            Self::Did(text) => write!(f, "------  {text}"),
            Self::Fault => write!(f, "------  FAULT"),
            Self::Blind(why) => write!(f, "------  the images are not looked at any more: {why}"),
        }
    }
}

/// An observation and when it was made.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    /// Since the scenario began.
    pub(crate) at: Duration,
    /// What it was.
    pub(crate) what: What,
}

/// The events of one scenario, in order. Also written to a file as they come.
pub(crate) struct Timeline {
    start: Instant,
    inner: Mutex<Inner>,
    more: Condvar,
}

struct Inner {
    events: Vec<Event>,
    file: File,
}

impl Timeline {
    /// An empty one that is written to `path`.
    pub(crate) fn new(path: &Path) -> Result<Self, String> {
        let file = File::create(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let inner = Mutex::new(Inner { events: Vec::new(), file });
        Ok(Self { start: Instant::now(), inner, more: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds what is seen now.
    pub(crate) fn push(&self, what: What) {
        let mut inner = self.lock();
        let at = self.start.elapsed();
        // The file is for people; a full disk shows in other ways.
        let _ = writeln!(inner.file, "{:9.3}  {what}", at.as_secs_f64());
        inner.events.push(Event { at, what });
        drop(inner);
        self.more.notify_all();
    }

    /// Adds what the scenario does.
    pub(crate) fn did(&self, text: impl Into<String>) {
        self.push(What::Did(text.into()));
    }

    /// The time of an event that would be seen now.
    pub(crate) fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Number of events so far: a place to wait from.
    pub(crate) fn mark(&self) -> usize {
        self.lock().events.len()
    }

    /// Everything so far.
    pub(crate) fn events(&self) -> Vec<Event> {
        self.lock().events.clone()
    }

    /// The first event from `mark` on that `pick` takes, waiting for it at most `limit`.
    pub(crate) fn wait<T>(
        &self,
        mark: usize,
        limit: Duration,
        pick: impl Fn(&What) -> Option<T>,
    ) -> Option<(Duration, T)> {
        let deadline = Instant::now() + limit;
        let mut next = mark;
        let mut inner = self.lock();
        loop {
            while let Some(event) = inner.events.get(next) {
                next += 1;
                if let Some(picked) = pick(&event.what) {
                    return Some((event.at, picked));
                }
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            inner = self.more.wait_timeout(inner, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Like [`Timeline::wait`], and says what was missing.
    pub(crate) fn expect<T>(
        &self,
        mark: usize,
        limit: Duration,
        missing: &str,
        pick: impl Fn(&What) -> Option<T>,
    ) -> Result<(Duration, T), String> {
        let found = self.wait(mark, limit, pick);
        found.ok_or_else(|| format!("within {} s: no {missing}", limit.as_secs()))
    }
}
