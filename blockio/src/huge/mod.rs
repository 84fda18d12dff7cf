//! A small stock of huge pages for large transfers.
//!
//! A direct read of 1 MiB into 256 ordinary pages takes about twice as long as into half a huge page: the kernel pins, splits and walks
//! page by page, and so does whoever looks through the bytes (docs/decisions/0014). So whoever works on leases takes its large buffers here
//! if one is ready, and ordinary memory otherwise.
//!
//! ```text
//! take ──> a piece of an area that is there ──> AlignedBuf ──> engine ──> completion ──> dropped: the piece is free again
//!   └────> None, and the thread `sanlock-memory` makes an area for the next one
//! ```
//!
//! # Invariants
//! - Only that thread makes areas and gives them back. `take`, and dropping a buffer, change a few words under a lock that is held for
//!   memory operations only.
//! - Pieces that are out never overlap, and an area with a piece out is neither reused nor unmapped. A piece is out for as long as its
//!   buffer exists, so also while an operation that timed out may still write to it.
//! - All areas together have at most [`HUGE_MEMORY_MAX`] bytes. One that nobody used for [`IDLE`] is given back.

mod area;

use std::fmt;
use std::fs;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::buffer::{AlignedBuf, MAX_IO_LEN};
use crate::offload;
use area::{Area, Failure, PAGE};

/// Bytes in areas at most, whatever happens.
pub const HUGE_MEMORY_MAX: usize = 32 << 20;

/// Smallest buffer that comes from the stock: for shorter ones the pages make no difference.
pub const HUGE_BUFFER_MIN: usize = 64 << 10;

/// How long an area that nobody uses is kept.
const IDLE: Duration = Duration::from_secs(60);

/// How long after a failure nothing is tried.
const RETRY_AFTER: Duration = Duration::from_secs(60);

/// Unit of pieces.
const UNIT: usize = HUGE_BUFFER_MIN;

/// The bits of `Shelf::used` suffice for the largest area.
const _: () = assert!(MAX_IO_LEN / UNIT <= u128::BITS as usize && MAX_IO_LEN % PAGE == 0);

/// Kernel's settings of huge pages.
const SETTINGS: &str = "/sys/kernel/mm/transparent_hugepage";

/// Why there is no stock.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum NoHugePages {
    /// The kernel has none or gives them to nobody.
    #[error("huge pages are not to be had: {0}")]
    Off(String),
    /// A huge page here is not what the stock is made of (2 MiB).
    #[error("huge pages have {found} bytes here, not {PAGE}")]
    Size {
        /// Their size.
        found: usize,
    },
    /// No thread is to be had.
    #[error("no thread to make huge pages is to be had")]
    Thread,
}

/// The stock. Shared by everybody who works on leases; when it is dropped its thread ends, and its memory goes with the last buffer.
pub struct HugePages {
    shared: Arc<Shared>,
}

impl HugePages {
    /// An empty stock, and the thread that fills it as soon as something is wanted.
    ///
    /// `note` is called on that thread, once, if there turn out to be no huge pages.
    ///
    /// # Errors
    /// See [`NoHugePages`]; all of them mean that ordinary memory is to be used.
    pub fn start(note: impl FnOnce(&str) + Send + 'static) -> Result<Arc<Self>, NoHugePages> {
        let read = |name: &str| fs::read_to_string(format!("{SETTINGS}/{name}")).ok();
        verdict(
            read("enabled").as_deref(),
            read("hugepages-2048kB/enabled").as_deref(),
            read("hpage_pmd_size").as_deref(),
        )?;
        let shared = Arc::new(Shared::default());
        let maker = Arc::clone(&shared);
        if offload::spawn("sanlock-memory", move || maker.keep(note)) {
            Ok(Arc::new(Self { shared }))
        } else {
            Err(NoHugePages::Thread)
        }
    }

    /// From now on areas are locked when they are made: the process locks all memory that it maps.
    pub fn lock(&self) {
        self.shared.locked.store(true, Ordering::SeqCst);
    }

    /// A buffer of exactly `len` bytes **with any content**, what others read or wrote included; `None` if none is ready, or if `len` is outside
    /// [`HUGE_BUFFER_MIN`]`..=`[`MAX_IO_LEN`]. Never makes or waits for memory; what is missing is made for the next one.
    #[must_use]
    pub fn take(&self, len: usize) -> Option<AlignedBuf> {
        if !(HUGE_BUFFER_MIN..=MAX_IO_LEN).contains(&len) {
            return None;
        }
        let mut state = self.shared.lock();
        if let Some((shelf, used, start)) = state.piece(len) {
            drop(state);
            let piece = Piece { shared: Arc::clone(&self.shared), shelf, used };
            return Some(AlignedBuf::of_piece(start, len, piece));
        }
        if state.want(len, Instant::now()) {
            self.shared.work.notify_one();
        }
        None
    }

    /// Has an area made if there is none: somebody is about to need a buffer.
    pub fn prepare(&self) {
        let mut state = self.shared.lock();
        if state.shelves.is_empty() && state.want(PAGE, Instant::now()) {
            self.shared.work.notify_one();
        }
    }

    /// Bytes in areas, used or not.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.shared.lock().bytes()
    }
}

impl fmt::Debug for HugePages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HugePages({} bytes)", self.bytes())
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        self.shared.lock().stopping = true;
        self.shared.work.notify_one();
    }
}

/// A part of an area, free again when it is dropped.
pub(crate) struct Piece {
    shared: Arc<Shared>,
    shelf: u64,
    used: u128,
}

impl Drop for Piece {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        let Some(shelf) = state.shelves.iter_mut().find(|shelf| shelf.id == self.shelf) else { return };
        shelf.used &= !self.used;
        if shelf.used == 0 {
            shelf.idle_since = Instant::now();
        }
    }
}

/// An area and which of its units are out.
struct Shelf {
    id: u64,
    area: Area,
    used: u128,
    idle_since: Instant,
}

#[derive(Default)]
struct State {
    shelves: Vec<Shelf>,
    next_id: u64,
    /// The largest buffer that was missed since the last area was made; 0 for none.
    wanted: usize,
    /// Nothing is tried before.
    retry_at: Option<Instant>,
    stopping: bool,
}

impl State {
    fn bytes(&self) -> usize {
        self.shelves.iter().map(|shelf| shelf.area.len()).sum()
    }

    /// Takes `len` bytes out of an area: its id, the units, the first byte.
    fn piece(&mut self, len: usize) -> Option<(u64, u128, NonNull<u8>)> {
        self.shelves.iter_mut().find_map(|shelf| {
            let (first, units) = free_run(shelf.used, shelf.area.len() / UNIT, len.div_ceil(UNIT))?;
            shelf.used |= units;
            Some((shelf.id, units, shelf.area.at(first * UNIT)))
        })
    }

    /// Notes that `len` bytes were missed; whether there is something to do about it.
    fn want(&mut self, len: usize, now: Instant) -> bool {
        let possible = self.bytes() + area_for(len) <= HUGE_MEMORY_MAX;
        if !possible || self.retry_at.is_some_and(|at| now < at) {
            return false;
        }
        self.wanted = self.wanted.max(len);
        true
    }

    /// Takes out an area that nobody used for long.
    fn idle(&mut self, now: Instant) -> Option<Shelf> {
        let idle = |shelf: &Shelf| shelf.used == 0 && now.saturating_duration_since(shelf.idle_since) >= IDLE;
        let at = self.shelves.iter().position(idle)?;
        Some(self.shelves.swap_remove(at))
    }
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    work: Condvar,
    locked: AtomicBool,
}

impl Shared {
    /// No code path panics while holding the lock, and every update leaves the state consistent.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Body of the thread that makes areas and gives them back.
    fn keep(&self, note: impl FnOnce(&str)) {
        let mut note = Some(note);
        let mut state = self.lock();
        while !state.stopping {
            if let Some(shelf) = state.idle(Instant::now()) {
                drop(state);
                drop(shelf);
                state = self.lock();
                continue;
            }
            let len = area_for(std::mem::take(&mut state.wanted));
            if len == 0 || state.bytes() + len > HUGE_MEMORY_MAX {
                // Without areas nothing becomes idle: the thread sleeps until something is wanted.
                state = if state.shelves.is_empty() {
                    self.work.wait(state).unwrap_or_else(PoisonError::into_inner)
                } else {
                    self.work.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner).0
                };
                continue;
            }
            drop(state);
            let made = Area::make(len, self.locked.load(Ordering::SeqCst));
            state = self.lock();
            // Whoever missed something meanwhile asks again if this does not suffice.
            state.wanted = 0;
            match made {
                Ok(area) => {
                    let id = state.next_id;
                    state.next_id += 1;
                    state.shelves.push(Shelf { id, area, used: 0, idle_since: Instant::now() });
                }
                Err(failure) => {
                    state.retry_at = Some(Instant::now() + RETRY_AFTER);
                    drop(state);
                    if let Some(note) = note.take() {
                        note(&describe(failure));
                    }
                    state = self.lock();
                }
            }
        }
        // What no buffer is in. The rest goes with `Shared`, after the last buffer.
        let (unused, used) =
            std::mem::take(&mut state.shelves).into_iter().partition(|shelf| shelf.used == 0);
        state.shelves = used;
        drop(state);
        let unused: Vec<Shelf> = unused;
        drop(unused);
    }
}

/// Bytes of the area that is made for a buffer; 0 for 0.
fn area_for(len: usize) -> usize {
    len.div_ceil(PAGE) * PAGE
}

/// The first `wanted` free units of `total` that lie side by side, as their number and as bits.
fn free_run(used: u128, total: usize, wanted: usize) -> Option<(usize, u128)> {
    let bits = u128::MAX.checked_shr(u128::BITS.checked_sub(u32::try_from(wanted).ok()?)?)?;
    // At multiples of the size, so that buffers of different sizes leave no useless gaps.
    let last = total.checked_sub(wanted)?;
    (0..=last).step_by(wanted).map(|first| (first, bits << first)).find(|(_, run)| used & run == 0)
}

/// Whether the kernel's settings allow huge pages of our size. A setting that an older kernel lacks forbids nothing.
fn verdict(
    enabled: Option<&str>,
    enabled_for_size: Option<&str>,
    size: Option<&str>,
) -> Result<(), NoHugePages> {
    let Some(enabled) = enabled else {
        return Err(NoHugePages::Off(format!("{SETTINGS}/enabled cannot be read")));
    };
    if enabled.contains("[never]") {
        return Err(NoHugePages::Off(format!("{SETTINGS}/enabled is never")));
    }
    if enabled_for_size.is_some_and(|text| text.contains("[never]")) {
        return Err(NoHugePages::Off(format!("{SETTINGS}/hugepages-2048kB/enabled is never")));
    }
    match size.and_then(|text| text.trim().parse().ok()) {
        Some(found) if found != PAGE => Err(NoHugePages::Size { found }),
        _ => Ok(()),
    }
}

fn describe(failure: Failure) -> String {
    match failure {
        Failure::Ordinary => "the kernel has no huge pages to give: ordinary memory is used".to_owned(),
        Failure::Os(call, errno) => {
            format!("no huge pages: {call} failed with errno {errno}; ordinary memory is used")
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
