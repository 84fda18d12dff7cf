//! Looks at the shared images from outside and reports every change.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use sanlock_blockio::AlignedBuf;
use sanlock_lease::record::{DELTA_MAGIC, PAXOS_MAGIC, RawLeader};

use crate::layout::{HOSTS, LEASE_SECTOR, LOCKSPACE_OFFSET, RESOURCE_OFFSET, STAMP_BYTES, Stamp};
use crate::timeline::{Timeline, What};

/// Between two looks: the error of every time taken from the disk.
const LOOK_EVERY: Duration = Duration::from_millis(30);

/// The images of one scenario.
pub(crate) struct Images {
    /// Lease disks, in the order of the guests' names.
    pub(crate) leases: Vec<std::path::PathBuf>,
    /// The disk that is never cut.
    pub(crate) stamps: std::path::PathBuf,
}

/// A thread that looks until it is dropped.
pub(crate) struct Watcher {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    timeline: Arc<Timeline>,
}

impl Watcher {
    /// Starts looking.
    ///
    /// # Errors
    /// An image cannot be opened for direct I/O (a tmpfs refuses it).
    pub(crate) fn start(images: &Images, timeline: Arc<Timeline>) -> Result<Self, String> {
        let mut looker = Looker {
            leases: images.leases.iter().map(|path| open(path)).collect::<Result<_, _>>()?,
            stamps: open(&images.stamps)?,
            timeline: Arc::clone(&timeline),
            renewals: vec![[0; HOSTS]; images.leases.len()],
            leader: None,
            counters: [[0; HOSTS + 1]; 2],
        };
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                if let Err(error) = looker.look() {
                    return looker.timeline.push(What::Blind(error.to_string()));
                }
                thread::sleep(LOOK_EVERY);
            }
        });
        Ok(Self { stop, thread: Some(thread), timeline })
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic in it has been printed.
            if thread.join().is_err() {
                self.timeline.push(What::Blind("the thread that looks panicked".to_owned()));
            }
        }
    }
}

fn open(path: &Path) -> Result<File, String> {
    let file = File::options().read(true).custom_flags(nix::libc::O_DIRECT).open(path);
    file.map_err(|error| format!("{}: {error}", path.display()))
}

struct Looker {
    leases: Vec<File>,
    stamps: File,
    timeline: Arc<Timeline>,
    renewals: Vec<[u64; HOSTS]>,
    leader: Option<RawLeader>,
    counters: [[u64; HOSTS + 1]; 2],
}

impl Looker {
    /// One look. The stamps come first: a stamp seen in a later look than a new owner was written after it.
    fn look(&mut self) -> std::io::Result<()> {
        for (place, on_lease_disk) in [(0, false), (1, true)] {
            let disk = if on_lease_disk { self.leases.first() } else { Some(&self.stamps) };
            let Some(disk) = disk else { continue };
            let mut buffer = AlignedBuf::zeroed(STAMP_BYTES * (HOSTS + 1));
            disk.read_exact_at(&mut buffer, Stamp::offset(0))?;
            for host in 1..=HOSTS {
                let counter = Stamp::counter_of(host, &buffer[host * STAMP_BYTES..]).unwrap_or(0);
                if counter != std::mem::replace(&mut self.counters[place][host], counter) {
                    let what = if on_lease_disk { What::LeaseDiskStamp } else { What::Stamp };
                    self.timeline.push(what(host - 1, counter));
                }
            }
        }
        let mut buffer = AlignedBuf::zeroed(4096);
        for (space, disk) in self.leases.iter().enumerate() {
            disk.read_exact_at(&mut buffer, LOCKSPACE_OFFSET)?;
            for (host, sector) in buffer.chunks_exact(LEASE_SECTOR).take(HOSTS).enumerate() {
                let leader = RawLeader::from_sector(sector);
                let timestamp = leader.timestamp.get();
                let sound =
                    leader.magic.get() == DELTA_MAGIC && leader.checksum.get() == leader.computed_checksum();
                if sound && timestamp != std::mem::replace(&mut self.renewals[space][host], timestamp) {
                    self.timeline.push(What::Renewal { space, host, timestamp });
                }
            }
        }
        if let Some(disk) = self.leases.first() {
            disk.read_exact_at(&mut buffer, RESOURCE_OFFSET)?;
            let leader = RawLeader::from_sector(&buffer[..LEASE_SECTOR]);
            let sound =
                leader.magic.get() == PAXOS_MAGIC && leader.checksum.get() == leader.computed_checksum();
            if sound && self.leader.replace(leader) != Some(leader) {
                self.timeline.push(What::Leader {
                    owner: leader.owner_id.get(),
                    generation: leader.owner_generation.get(),
                    lver: leader.lver.get(),
                    timestamp: leader.timestamp.get(),
                });
            }
        }
        Ok(())
    }
}
