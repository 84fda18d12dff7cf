//! Opens off the caller's thread, which may hang: one at a time for each path, whoever asks, and a number of them for each kind of
//! asker.
//!
//! # Invariants
//! - An open is in [`UNDER_WAY`] from when it is asked for until its result is there, or it is given up. Meanwhile whoever wants the same
//!   path in the same way waits for it, as long as it likes. Later nobody does: a path is opened anew for each who asks when no open
//!   is under way.
//! - Who waits for an open that was begun before gets what the path leads to since it asked ([`Begun::carry_out`]).
//! - An open that hangs while another file system is mounted at its path, or the one there goes away, is made once more beside it: the first
//!   that ends is the result. Which mount it is is looked at on a thread of its own ([`look`]), when somebody joins or gives up waiting, so a
//!   mount that is replaced before anybody did is not noticed.
//! - Beyond a quarter of the opens that a kind of asker may have under way, each mount has a share of the rest: one that is dead leaves
//!   opens to the paths on others.
//! - The result belongs to those who wait for it. When the last of them has it, or wants it no more, nothing here keeps it; without
//!   any the disk is closed again.

mod mounts;

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags};
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::blocking::poll_for;
use crate::calls::{RETRY_MS, share};
use crate::disk::{Access, Disk};
use crate::errand::Errand;
use crate::error::OpenError;
use crate::offload;
use crate::stat::Stat;
pub use mounts::unescape;
use mounts::{Mount, Mounts};

/// Who has a disk opened, read and written. Each kind has a number of opens and of calls of its own that may be under way, all of them hanging,
/// so none is refused because of what others do. Who waits for an open that is under way needs none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    /// Acquires, releases and conversions of leases.
    Lease,
    /// A lockspace that is joined, or looks at its other hosts.
    Lockspace,
    /// Commands that come and go, and tools.
    Command,
}

impl Asker {
    /// Opens that may be under way for this kind of asker, in the whole process.
    ///
    /// Many disks may be slow at a time without being dead, after a start for example, and there may be hundreds of lockspaces. A command waits
    /// for one open at a time, and eight run side by side by default. Of these a mount has a quarter, and fewer when there are many: 32 paths on one
    /// that is dead, 16 for commands, are enough to say that it is.
    #[must_use]
    pub const fn opens_max(self) -> usize {
        match self {
            Asker::Lease | Asker::Lockspace => 128,
            Asker::Command => 64,
        }
    }

    /// Reads and writes that may be under way for this kind of asker, in the whole process, those that hang included
    /// ([`crate::CallPlace`]). For lockspaces these are joins and looks at other hosts: renewals are not counted.
    ///
    /// A lease has two at a time, and more than a hundred on one device are no faster than a hundred; a lockspace that joins or looks has one. Each may
    /// hold a thread, whose stack is 64 KiB.
    #[must_use]
    pub const fn calls_max(self) -> usize {
        match self {
            Asker::Lease | Asker::Lockspace => 512,
            Asker::Command => 256,
        }
    }
}

/// Opens that may be under way at a time, in the whole process. Each may hold a thread, whose stack is 64 KiB.
pub const MAX_BACKGROUND_OPENS: usize =
    Asker::Lease.opens_max() + Asker::Lockspace.opens_max() + Asker::Command.opens_max();

/// Opens that are made once more beside one that hangs, of all paths, until the hanging one ends: one for each path on a mount that is
/// dead and is replaced, of which a mount has no more than its share.
pub const SECOND_OPENS_MAX: usize = MAX_BACKGROUND_OPENS / 4;

/// Of one path.
const SECOND_OPENS_OF_A_PATH: usize = 4;

/// How old what is known of the mounts may be.
const MOUNTS_AGE_MAX: Duration = Duration::from_secs(1);

/// How often an open that others join while it ends is looked at again. Each look takes microseconds where storage answers.
const LOOKS_MAX: usize = 3;

type Opened = Result<Arc<Disk>, OpenError>;

static UNDER_WAY: Mutex<Vec<Arc<UnderWay>>> = Mutex::new(Vec::new());

/// The mounts, and when they were looked at.
static MOUNTS: Mutex<Option<(Instant, Arc<Mounts>)>> = Mutex::new(None);

/// Whether somebody looks at them.
static LOOKING: AtomicBool = AtomicBool::new(false);

/// How many [`Second`] there are.
static SECONDS: AtomicUsize = AtomicUsize::new(0);

/// An open that somebody carries out.
struct UnderWay {
    path: PathBuf,
    access: Access,
    asker: Asker,
    begun: Instant,
    /// Readable when the result is there. Nobody reads it.
    ready: EventFd,
    outcome: Mutex<Outcome>,
    /// The mount it hangs on, since somebody has looked.
    mount: Mutex<Option<Option<Mount>>>,
    seconds: Mutex<Vec<Second>>,
    /// One of them was given up before it was made.
    not_carried_out: AtomicBool,
}

/// For an open that is made once more. As long as it is there, a thread may hang that nobody else counts.
struct Second;

impl Second {
    fn new() -> Option<Self> {
        let more = |count| if count < SECOND_OPENS_MAX { Some(count + 1) } else { None };
        SECONDS.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok().then_some(())?;
        Some(Self)
    }
}

impl Drop for Second {
    fn drop(&mut self) {
        SECONDS.fetch_sub(1, Ordering::SeqCst);
    }
}

struct Outcome {
    result: Option<Opened>,
    /// Who will take the result.
    waiting: usize,
    /// Whether somebody asked after it was begun.
    joined: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why an open cannot begin.
enum Refused {
    /// That many are in its way, none of which has been under way for less.
    Limit(Limit),
    Error(OpenError),
}

struct Limit {
    count: usize,
    least: Duration,
}

impl Refused {
    fn error(self, path: &Path) -> OpenError {
        match self {
            Self::Limit(limit) => OpenError::TooManyHanging { path: path.to_owned(), limit: limit.count },
            Self::Error(error) => error,
        }
    }
}

/// An open for the caller to have carried out, or to wait for if one is under way.
///
/// # Errors
/// As [`Disk::open_on_errand`].
pub(crate) fn begin(
    path: &Path,
    access: Access,
    asker: Asker,
) -> Result<(PendingOpen, Option<Errand>), OpenError> {
    try_begin(path, access, asker).map_err(|refused| refused.error(path))
}

fn try_begin(path: &Path, access: Access, asker: Asker) -> Result<(PendingOpen, Option<Errand>), Refused> {
    let mut all = lock(&UNDER_WAY);
    if let Some(open) = all.iter().find(|open| open.access == access && open.path == path) {
        let mut outcome = lock(&open.outcome);
        outcome.waiting += 1;
        outcome.joined = true;
        drop(outcome);
        let pending = PendingOpen { open: Arc::clone(open), waits: true };
        drop(all);
        look_soon();
        return Ok((pending, None));
    }
    if let Some(limit) = limit_reached(&all, path, asker) {
        drop(all);
        look_soon();
        return Err(Refused::Limit(limit));
    }
    let ready = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK).map_err(|errno| {
        Refused::Error(OpenError::Os { path: path.to_owned(), call: "eventfd", errno: errno as i32 })
    })?;
    let outcome = Mutex::new(Outcome { result: None, waiting: 1, joined: false });
    let (mount, seconds, not_carried_out) = (Mutex::default(), Mutex::default(), AtomicBool::new(false));
    let (path, begun) = (path.to_owned(), Instant::now());
    let open =
        Arc::new(UnderWay { path, access, asker, begun, ready, outcome, mount, seconds, not_carried_out });
    all.push(Arc::clone(&open));
    let begun = Begun(Arc::clone(&open));
    Ok((PendingOpen { open, waits: true }, Some(Errand::new(move || begun.carry_out()))))
}

/// Which opens are in the way, if no further one of this path may begin.
fn limit_reached(all: &[Arc<UnderWay>], path: &Path, asker: Asker) -> Option<Limit> {
    let (max, own) = (asker.opens_max(), || all.iter().filter(|open| open.asker == asker));
    let limit = |counted: Vec<&Arc<UnderWay>>| Limit {
        count: counted.len(),
        least: counted.iter().map(|open| open.begun.elapsed()).min().unwrap_or_default(),
    };
    let taken = own().count();
    if taken < max / 4 {
        return None;
    }
    if taken >= max {
        return Some(limit(own().collect()));
    }
    // What nobody has looked at yet is soon known: who is refused has somebody look.
    let Some(mounts) = lock(&MOUNTS).as_ref().map(|(_, mounts)| Arc::clone(mounts)) else {
        return Some(limit(own().collect()));
    };
    let mount = mounts.of(path);
    let beside: Vec<_> = own().filter(|open| mounts.make_suspect(&open.path, mount)).collect();
    (beside.len() >= share(taken, max)).then(|| limit(beside))
}

/// Has somebody [`look`], unless that has been done a short while ago. Never blocks.
fn look_soon() {
    let known = lock(&MOUNTS).as_ref().is_some_and(|(at, _)| at.elapsed() < MOUNTS_AGE_MAX);
    if !known && !LOOKING.swap(true, Ordering::SeqCst) && !offload::spawn("sanlock-mounts", look) {
        LOOKING.store(false, Ordering::SeqCst);
    }
}

/// Looks at the mounts, and has opens made once more whose path is not on the mount any more that they hang on. **May hang.**
fn look() {
    if let Ok(mounts) = Mounts::read() {
        let mounts = Arc::new(mounts);
        *lock(&MOUNTS) = Some((Instant::now(), Arc::clone(&mounts)));
        let all = lock(&UNDER_WAY).clone();
        for open in all {
            let now = mounts.of(&open.path);
            let mut known = lock(&open.mount);
            // A change that nothing was done about, for want of a thread or of room, is seen again at the next look.
            let same = |before| before == now && !open.not_carried_out.load(Ordering::SeqCst);
            if known.is_none_or(|before| same(before) || once_more(&open)) {
                *known = Some(now);
            }
        }
    }
    LOOKING.store(false, Ordering::SeqCst);
}

/// For whoever makes an open once more.
struct Again(Arc<UnderWay>);

impl Drop for Again {
    /// Also without that, where a thread that was to come did not. After it the open has ended, and nobody looks.
    fn drop(&mut self) {
        self.0.not_carried_out.store(true, Ordering::SeqCst);
    }
}

/// Makes an open that hangs once more. `false`: there may be no further one now, or there is no thread.
fn once_more(open: &Arc<UnderWay>) -> bool {
    let mut seconds = lock(&open.seconds);
    if seconds.len() >= SECOND_OPENS_OF_A_PATH {
        return false;
    }
    let Some(second) = Second::new() else { return false };
    open.not_carried_out.store(false, Ordering::SeqCst);
    let again = Again(Arc::clone(open));
    let begun = offload::open(Errand::new(move || again.0.carry_out()));
    if begun {
        seconds.push(second);
    }
    begun
}

/// As [`begin`], on a background thread.
///
/// # Errors
/// As [`Disk::open_in_background`].
pub(crate) fn begin_in_background(
    path: &Path,
    access: Access,
    asker: Asker,
) -> Result<PendingOpen, OpenError> {
    let (pending, errand) = begin(path, access, asker)?;
    if errand.is_none_or(offload::open) { Ok(pending) } else { Err(no_thread(path)) }
}

/// As [`begin_in_background`], and waits: also for others to end, where no more may be under way. They need not hang, they may have begun at
/// the same time; if each has been under way for as long as this one would wait, they do.
///
/// # Errors
/// As [`Disk::open_timeout`].
pub(crate) fn open_timeout(path: &Path, access: Access, asker: Asker, timeout: Duration) -> Opened {
    let start = Instant::now();
    let left = || timeout.saturating_sub(start.elapsed());
    let (mut pending, errand) = loop {
        match try_begin(path, access, asker) {
            Err(Refused::Limit(limit)) if limit.least < timeout && !left().is_zero() => {
                thread::sleep(left().min(Duration::from_millis(RETRY_MS)));
            }
            begun => break begun.map_err(|refused| refused.error(path))?,
        }
    };
    if !errand.is_none_or(offload::open) {
        return Err(no_thread(path));
    }
    let _ = poll_for(&mut [PollFd::new(pending.completion_fd(), PollFlags::POLLIN)], left());
    pending.take().unwrap_or_else(|| Err(OpenError::TimedOut { path: path.to_owned() }))
}

fn no_thread(path: &Path) -> OpenError {
    OpenError::Os { path: path.to_owned(), call: "thread", errno: libc::EAGAIN }
}

/// For whoever carries an open out. Dropped without that it tells all who wait.
struct Begun(Arc<UnderWay>);

impl Begun {
    /// **May hang.**
    ///
    /// Who asked after the open was begun, perhaps hours later, may have replaced the file before. So with such askers the path must
    /// lead to what was opened, or it is opened once more; after a failure it always is.
    fn carry_out(self) {
        self.0.carry_out();
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        // Does nothing if it has ended.
        self.0.end(Err(no_thread(&self.0.path)), ForWhom::All);
    }
}

fn leads_to(path: &Path, opened: &Opened) -> bool {
    opened.as_ref().is_ok_and(|disk| Stat::of_path(path).is_ok_and(|stat| stat.identity == disk.identity()))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ForWhom {
    All,
    /// Only if nobody has joined since it was last tried.
    NobodyJoined,
}

impl UnderWay {
    /// As [`Begun::carry_out`]. Whoever comes second finds that it has ended.
    fn carry_out(&self) {
        let mut result = Disk::open(&self.path, self.access);
        for _ in 0..LOOKS_MAX {
            result = match self.end(result, ForWhom::NobodyJoined) {
                None => return,
                Some(result) if leads_to(&self.path, &result) => result,
                Some(_old) => Disk::open(&self.path, self.access),
            };
        }
        self.end(result, ForWhom::All);
    }

    /// Hands the result to those who wait, unless it gives it back. From then on nobody joins.
    fn end(&self, result: Opened, whom: ForWhom) -> Option<Opened> {
        let mut all = lock(&UNDER_WAY);
        let mut outcome = lock(&self.outcome);
        if std::mem::take(&mut outcome.joined) && whom == ForWhom::NobodyJoined {
            return Some(result);
        }
        let at = all.iter().position(|open| std::ptr::eq(&raw const **open, self))?;
        let last = all.swap_remove(at);
        let unwanted = match outcome.waiting {
            0 => Some(result),
            _ => outcome.result.replace(result),
        };
        drop((outcome, all));
        let _ = self.ready.write(1); // one write cannot fill the counter
        drop((unwanted, last));
        None
    }
}

/// An open running in the background. Dropping it never waits; a disk that opens later, and for which nobody else waits, is closed again.
pub struct PendingOpen {
    open: Arc<UnderWay>,
    /// Whether the result has not been taken.
    waits: bool,
}

impl PendingOpen {
    /// Becomes readable (poll, epoll) when the result is there, and stays so.
    #[must_use]
    pub fn completion_fd(&self) -> BorrowedFd<'_> {
        self.open.ready.as_fd()
    }

    /// The result, once, when it is there. Never blocks.
    pub fn take(&mut self) -> Option<Result<Arc<Disk>, OpenError>> {
        let mut outcome = lock(&self.open.outcome);
        if !self.waits || outcome.result.is_none() {
            return None;
        }
        self.waits = false;
        outcome.waiting -= 1;
        if outcome.waiting == 0 { outcome.result.take() } else { outcome.result.clone() }
    }

    /// Whoever has this takes the result for one more who asks now. `false`: too late, it is there, and may be what was at that path long ago.
    #[must_use]
    pub fn join(&self) -> bool {
        let mut outcome = lock(&self.open.outcome);
        outcome.joined = true;
        let in_time = self.waits && outcome.result.is_none();
        drop(outcome);
        if in_time {
            look_soon();
        }
        in_time
    }

    /// The path being opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.open.path
    }
}

impl Drop for PendingOpen {
    fn drop(&mut self) {
        if !self.waits {
            return;
        }
        let mut outcome = lock(&self.open.outcome);
        outcome.waiting -= 1;
        let unwanted = if outcome.waiting == 0 { outcome.result.take() } else { None };
        let hangs = outcome.result.is_none() && unwanted.is_none();
        drop(outcome);
        drop(unwanted);
        if hangs {
            look_soon();
        }
    }
}

impl fmt::Debug for PendingOpen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PendingOpen({})", self.open.path.display())
    }
}
